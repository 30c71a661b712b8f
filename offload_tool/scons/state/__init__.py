"""The state of passes: manifests, caches, decisions."""
