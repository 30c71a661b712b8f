"""Object files and archives of them: ELF, COFF and ar, their symbols, and editing."""
