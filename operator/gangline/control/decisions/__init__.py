"""Decides when the engine decides, and carries out each of its decisions.

In: facts that have arrived, the pace of writes, `model.Decision`. Out: calls of `decide`, status changes, events, metrics and
notices.
"""
