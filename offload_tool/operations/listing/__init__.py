"""What files hold: images, kernels, sizes."""
