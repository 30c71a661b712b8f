"""Archives of bundles: the heterogeneous device archive and the device-specific ones."""
