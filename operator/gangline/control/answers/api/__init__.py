"""Kueue's visibility API, served to the API server's aggregator.

In: requests. Out: the pending workloads of a queue, for users who may see them.
"""
