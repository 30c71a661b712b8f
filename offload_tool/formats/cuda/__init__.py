"""CUDA's fat binaries, and what host programs say of them."""
