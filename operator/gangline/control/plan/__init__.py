"""Plans the next steps for one job.

In: the job, its Workload and the objects it owns, as last seen. Out: the next steps. Pure.
"""
