"""Start jobs, and follow what they print."""
