"""Reads what `gangline replay` takes beside a trace: policies from files of QueuePolicies."""
