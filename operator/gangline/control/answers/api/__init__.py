"""Kueue's visibility API and `answers.gangline.io`, served to the API server's aggregator.

In: requests of users, as the API server forwards them. Out: answers as JSON, for users who may see them.
"""
