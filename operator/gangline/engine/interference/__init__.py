"""Interference: how fast jobs run beside others on a card or a node, and who may join whom.

In: what was measured of classes of jobs (`model.JobProfile`), and what to expect of other pairs (`model.CompanyPrior`). Out:
expected speeds, and whether a pod may join those that are there.
"""
