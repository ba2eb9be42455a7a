"""The next steps for one workload that is sent to other clusters. Pure.

In: the Workload, its jobs, and what each cluster was last seen to hold for it. Out: steps.
"""
