"""From each decision of the engine to the writes that make it true.

In: `model.Decision`. Out: status changes, events, metrics and notices.
"""
