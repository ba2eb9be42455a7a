"""Which flavor each resource of a workload uses, and how well that goes.

In: a workload and its ClusterQueue as things are. Out: an `Assignment`: it fits, it would fit after preemption, or what
stands against it.
"""
