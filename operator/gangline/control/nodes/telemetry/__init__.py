"""Telemetry rules of QueuePolicies: what queries to Prometheus say of nodes, and what follows from it.

In: answers of a Prometheus. Out: what the engine learns of nodes, workloads that have to leave them, rows of policies' statuses.
"""
