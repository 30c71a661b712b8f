"""Utilities for all layers."""
