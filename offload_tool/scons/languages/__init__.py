"""Additions to the common graph for HIP, CUDA, OpenMP and kpack archives."""
