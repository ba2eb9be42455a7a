"""Which flavor each resource of a workload uses, and whether it fits there.

In: a workload and its ClusterQueue as they are. Out: an `Assignment`: it fits, it would fit after preemption, or why it does
not.
"""
