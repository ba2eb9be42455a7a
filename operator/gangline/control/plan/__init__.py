"""Plans the next steps for one job.

In: the job, its Workload and the objects it owns, as last seen. Out: the next steps. Pure.

More than a dozen modules: the plan of a job, what befalls its Workload on the way, and one for each part that sends steps.
"""
