"""ROCm's archives of device code, separate from the host code."""
