"""Options that several commands have, and the parser of all commands."""
