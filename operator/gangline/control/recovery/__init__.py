"""Lost nodes: the swap of a gang's pods, pods that can't end, pods that are let into their domains.

In: `Heal` and `Swap` decisions, nodes, the pod index. Out: the record on the Workload, deletions and patches of pods.
"""
