"""Answers about what is to come: expected starts, and what would let a job start earlier."""
