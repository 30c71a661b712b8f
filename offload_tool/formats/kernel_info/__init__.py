"""What device code says of its kernels: their names, sizes and resources."""
