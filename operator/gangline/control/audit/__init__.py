"""The audit record: the facts that the engine observed and the decisions that it made.

In: facts and decisions. Out: a file from which every decision can be repeated, and the result of repeating them.
"""
