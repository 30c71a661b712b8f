"""Precompiled headers as nodes of the build graph."""
