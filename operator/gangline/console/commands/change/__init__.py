"""Change jobs."""
