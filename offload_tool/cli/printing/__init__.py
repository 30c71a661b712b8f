"""How commands print: lines, tables, JSON."""
