"""Notices to users about their jobs.

In: an incident of a Workload. Out: messages for the receivers that policies and jobs name, bundled and delivered.
"""
