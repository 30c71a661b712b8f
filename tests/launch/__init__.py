"""``offload-tool launch``: judged by what the driver makes of the same command."""
