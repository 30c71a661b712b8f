"""Pass execution: commands, launchers, backups of outputs, and the manifest next to each output."""
