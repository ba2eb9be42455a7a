"""Trace replays: traces through the production engine under a virtual clock, policies side by side, metrics, one report.

    jobs = replayed(trace.jobs)
    result = simulate(jobs, Cluster(gpus=624), policy("easy"), predictor)
    metrics.of(result)

More than a dozen modules: the simulator, its inputs, the measures, and the report, a module each.
"""
