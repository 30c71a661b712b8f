"""Device links for NVIDIA's GPUs."""
