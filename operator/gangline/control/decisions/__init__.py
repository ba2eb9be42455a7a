"""Carrying out the engine's decisions.

In: `model.Decision`. Out: status changes, events, metrics and notices.
"""
