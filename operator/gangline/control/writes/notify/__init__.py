"""Notices to users about their jobs.

In: something that happened to a Workload. Out: messages for the receivers that policies and jobs name, bundled and delivered.
"""
