"""The mirror: the cluster as last seen.

In: watch events and answers to writes. Out: the newest objects, their owners, the jobs to be planned; facts for the engine.
"""
