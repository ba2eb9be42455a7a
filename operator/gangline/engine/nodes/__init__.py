"""Which nodes can be trusted, and what they have room for.

In: nodes, their signals, and where the pods of gangs are. Out: unusable nodes and why; room for a gang, or what is missing.
"""
