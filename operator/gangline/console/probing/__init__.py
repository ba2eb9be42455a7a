"""Measuring classes of jobs: each alone on a card, and each beside each other, as JobProfiles.

In: classes, and a prober that measures, on a node of the cluster or from a file. Out: JobProfiles as JSON.
"""
