"""Tests of what device code says of its kernels."""
