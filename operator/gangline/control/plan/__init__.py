"""What to do about one job.

In: the job, its Workload and what it owns, as last seen. Out: the next steps. Pure.
"""
