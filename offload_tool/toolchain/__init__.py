"""Which compiler is used, what it can do, and what identifies it."""
