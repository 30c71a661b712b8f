"""Compressed streams, which several formats have."""
