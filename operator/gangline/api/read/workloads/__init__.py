"""Workloads from JSON: pod sets, status, admission with its topology and cards, and the record of swaps."""
