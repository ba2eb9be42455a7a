"""The queue as others ask for it: Kueue's visibility API, served to the API server's aggregator.

In: requests. Out: who waits where, for those who may see it.
"""
