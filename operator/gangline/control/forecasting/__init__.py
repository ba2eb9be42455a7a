"""How long workloads run, and when waiting workloads will start.

In: Workloads and jobs as last seen, runs that have ended. Out: forecasts for the engine, expected starts, and their accuracy.
"""
