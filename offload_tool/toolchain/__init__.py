"""The compilers and installations of this machine, and their identity."""
