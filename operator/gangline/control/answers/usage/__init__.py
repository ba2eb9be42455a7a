"""Answers about use: shares, past runs, and what happened lately."""
