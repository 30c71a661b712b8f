"""LLVM bitcode: its bitstream, its symbols, and its embedded objects."""
