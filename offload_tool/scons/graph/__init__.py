"""The nodes of the build graph, and how builders declare them."""
