"""Workloads as plain values: read from JSON, found, counted, put into words, and what binds them."""
