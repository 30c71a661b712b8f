"""How clang is asked and told: options, response files, dependency files, job plans."""
