"""Administer an installation."""
