"""How long workloads run, and when those that wait will start.

In: Workloads and jobs as last seen, runs that have ended. Out: forecasts for the engine, expected starts, and how right both
were.
"""
