"""Turns Reservations into windows of nodes, and carries out what their beginnings and ends mean.

In: Reservations, nodes, the time. Out: windows for the engine, cordoned nodes, deadlines on pods, statuses.
"""
