"""Reading and editing ELF files."""
