"""What HIP, CUDA, OpenMP and kpack archives need beside the common graph."""
