"""Running a pass: its command, launchers, backups of outputs, and the manifest beside them."""
