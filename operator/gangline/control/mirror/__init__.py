"""The cluster as last seen.

In: events of the watches and answers of writes. Out: the newest objects, who owns whom, which jobs have to be planned; facts
for the engine.
"""
