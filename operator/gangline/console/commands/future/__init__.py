"""See the future."""
