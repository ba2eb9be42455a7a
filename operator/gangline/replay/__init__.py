"""Traces through the production engine under a virtual clock: policies side by side, every metric, one report.

jobs = replayed(trace.jobs)
result = simulate(jobs, Cluster(gpus=624), policy("easy"), predictor)
metrics.of(result)

More than a dozen modules: the simulator, what it plays, what is measured, and the report, a module each.
"""
