"""The audit record: every fact that the engine received, and every decision.

In: facts and decisions. Out: a file from which everything can be decided again, and the result of doing so.
"""
