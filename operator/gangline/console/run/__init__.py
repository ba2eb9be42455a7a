"""Runs an example on a cluster of its own: submits it, shows its progress, and checks the result."""
