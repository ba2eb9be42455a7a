"""The floor in the operator: the counterfactuals are played in a process of their own, and ClusterQueues are put into its modes.

In: every fact that the engine observes. Out: the mode of each ClusterQueue, for the mirror, the status of QueuePolicies and
metrics.
"""
