"""A compile for one target ID, or for the host: command, check of the output, registration."""
