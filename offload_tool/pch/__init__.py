"""Precompiled headers that leave the bytes of all outputs unchanged."""
