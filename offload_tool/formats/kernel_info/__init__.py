"""Kernels of device code: names, sizes and resources."""
