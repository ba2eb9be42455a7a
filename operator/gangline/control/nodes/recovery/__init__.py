"""Recovery from lost nodes: swaps of a gang's pods, and pods that cannot terminate.

In: `Heal` and `Swap` decisions, nodes, the pod index. Out: the record on the Workload, deletions and patches of pods.
"""
