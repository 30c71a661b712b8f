"""Read and edit ELF files."""
