"""Drop-ins for LLVM's programs, with their command lines."""
