"""Reservations for the heads of queues, and backfill: workloads that start before them without delaying them.

In: forecasts, holders, the attempts of a cycle. Out: which workloads may start before their turn, and which are preempted
again.
"""
