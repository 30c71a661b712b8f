"""Clang Offload Packager: https://clang.llvm.org/docs/ClangOffloadPackager.html."""
