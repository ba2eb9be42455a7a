"""Pods that wait behind a Gangline scheduling gate until their node or domain is known."""
