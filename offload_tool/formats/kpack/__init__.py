"""ROCm's archives of device code apart from its host."""
