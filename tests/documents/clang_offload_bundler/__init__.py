"""Clang Offload Bundler: https://clang.llvm.org/docs/ClangOffloadBundler.html, of Clang 22."""
