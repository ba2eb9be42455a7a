"""The audit record: the facts that the engine observed and the decisions that it made.

In: facts and decisions. Out: a file from which every decision can be repeated; its decisions one by one, by an index; what was
known before one of them; and the result of repeating them all.
"""
