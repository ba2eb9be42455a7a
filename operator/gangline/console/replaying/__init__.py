"""Reads what `gangline admin replay` takes beside a trace: policies from files of QueuePolicies."""
