"""A record of what the engine was told and what it decided.

In: facts and decisions. Out: a file from which everything can be decided again, and what came of doing so.
"""
