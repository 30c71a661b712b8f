"""Benchmarks against LLVM 22: ``python -m benchmarks``, from the repository's root."""
