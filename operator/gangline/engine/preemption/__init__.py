"""Which workloads are preempted so that another one fits.

In: a workload with an assignment that does not fit yet. Out: its victims, no more than are needed, least valuable first.
"""
