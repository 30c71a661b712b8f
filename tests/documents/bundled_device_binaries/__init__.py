"""Bundled Device Binaries: the layout of clang-offload-bundler's binary files."""
