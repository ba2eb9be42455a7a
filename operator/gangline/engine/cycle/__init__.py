"""One scheduling cycle of one cohort tree, as Kueue runs it.

In: the heads of its ClusterQueues. Out: admissions, preemptions, and the reasons reported to workloads that wait.
"""
