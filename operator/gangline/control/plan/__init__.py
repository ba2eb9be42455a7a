"""The plan of one job: its next steps.

In: the job, its Workload and what it owns, as last seen. Out: the next steps. Pure.
"""
