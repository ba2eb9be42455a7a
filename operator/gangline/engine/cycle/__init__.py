"""One scheduling cycle of one cohort tree, as Kueue runs it.

In: the heads of its ClusterQueues. Out: who is admitted, who is preempted, and what those that wait are told.
"""
