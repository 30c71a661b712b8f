"""What the documents of the tools state, through the SCons tool.

One folder for each document, one module for each of its sections, one test for each statement: the
docstring begins with the sentence. Each test is an SConstruct, and LLVM's command beside it.

======================  ==========================================================
clang_offload_bundler   Clang Offload Bundler (Clang 22's documentation)
clang_offload_packager  Clang Offload Packager (Clang's documentation)
clang_offload_wrapper   Clang Offload Wrapper (of AMD's compiler)
======================  ==========================================================
"""
