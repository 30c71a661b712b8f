"""Names of what device code is for: target IDs, triples, bundle entry IDs, processors."""
