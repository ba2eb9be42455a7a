"""Statuses of Workloads, queues and policies: conditions and counts.

In: decisions and the engine's ledger. Out: status changes as plain JSON, queue statuses at most once a second.
"""
