"""What any layer may use."""
