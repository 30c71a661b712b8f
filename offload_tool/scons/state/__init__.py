"""What a build keeps of each pass: manifests, caches, decisions."""
