"""Run Gangline."""
