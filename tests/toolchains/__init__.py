"""Programs with real headers, in the manner of public ones, and what they register."""
