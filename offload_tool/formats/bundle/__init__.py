"""The file formats of clang-offload-bundler: binary, text, object and compressed bundles."""
