"""The compiler: how it is chosen, its capabilities and its identity."""
