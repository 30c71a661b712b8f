"""Precompiled headers that change no byte of an output."""
