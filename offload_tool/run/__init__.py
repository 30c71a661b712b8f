"""Pass execution: commands, launchers, backups of outputs, and the manifest beside each output."""
