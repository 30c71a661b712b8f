"""HIP's bundles in linked files, and what host programs say of them."""
