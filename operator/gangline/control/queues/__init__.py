"""What administrators configure: the statuses of queues, cohorts and policies, and the finalizers of objects that others use.

In: the engine's ledgers, and which objects name which. Out: statuses at most once a second, finalizers that come and go.
"""
