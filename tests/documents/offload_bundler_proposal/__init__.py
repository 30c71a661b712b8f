"""The proposal of clang-offload-bundler: what bundling and unbundling do, and the two layouts."""
