"""How long workloads run, and when waiting workloads will start.

In: Workloads and jobs as last seen, runs that have ended. Out: forecasts for the engine, expected starts, and their accuracy.

More than a dozen modules: one for each thing that is forecast, kept of the past, or played forward.
"""
