"""CUDA's fat binaries, and the symbols of host programs for them."""
