"""How to talk to clang: options, response files, dependency files, job plans."""
