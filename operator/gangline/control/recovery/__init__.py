"""Lost nodes: the swap of a gang's pods, and pods that cannot end.

In: `Heal` and `Swap` decisions, nodes, the pod index. Out: the record on the Workload, deletions and patches of pods.
"""
