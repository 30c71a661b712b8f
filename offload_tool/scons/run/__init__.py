"""Running commands of the build graph."""
