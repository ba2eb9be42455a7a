"""The workloads that are sent: what belongs to each, here and there, and the writes of each step.

In: the mirror, the connections, steps of the plan. Out: the view of a workload that the plan reads, and writes in all clusters.
"""
