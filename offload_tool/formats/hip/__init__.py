"""HIP's bundles in linked files, and the wrappers of host programs."""
