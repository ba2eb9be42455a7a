"""Reservations for the heads of queues, and workloads that start before them without delaying them.

In: forecasts, holders, the attempts of a cycle. Out: who may start before its turn, and who has to make room again.
"""
