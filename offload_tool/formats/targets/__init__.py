"""Names of device targets: target IDs, triples, bundle entry IDs, processors."""
