"""Runs queued pods and pod groups: the Workload of each group, its start, its end, its preemption.

In: watch events of managed pods, Workloads from the mirror. Out: writes of pods and Workloads. `group_plan` is pure.
"""
