"""Examine decisions."""
