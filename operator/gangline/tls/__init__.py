"""Serving over TLS: certificates of our own making, and a context whose certificate can be changed."""
