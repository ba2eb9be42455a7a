"""Runtime forecasts of workloads, and expected starts of those that wait.

In: Workloads and jobs as last seen, finished runs. Out: forecasts for the engine, expected starts, and the accuracy of both.
"""
