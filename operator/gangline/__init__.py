"""Gangline: a Kueue-compatible admission controller for gangs of GPU work."""

__version__ = "0.2.0"
