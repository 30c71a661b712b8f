"""LLVM bitcode: its bitstream, its symbols, and what is embedded in it."""
