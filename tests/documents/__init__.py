"""What the documents of LLVM's tools state, and what builders make, beside LLVM's own tools."""
