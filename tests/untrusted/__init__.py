"""Untrusted files: a test for each fault that occurred once; see docs/untrusted.md."""
