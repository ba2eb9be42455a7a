"""Carries out each decision of the engine.

In: `model.Decision`. Out: status changes, events, metrics and notices.
"""
