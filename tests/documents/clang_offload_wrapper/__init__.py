"""Clang Offload Wrapper: the document of the program in AMD's compiler."""
