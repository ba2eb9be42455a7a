"""Everything about the nodes and pods of running gangs: gates, cards, recovery, stalls, and placement from outside.

In: nodes, pods, the engine's placements and `Heal` decisions. Out: pods sent to their nodes, replaced, or found to hang.
"""
