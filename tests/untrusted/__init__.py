"""Untrusted files: each fault that was seen once, as a test; see docs/untrusted.md."""
