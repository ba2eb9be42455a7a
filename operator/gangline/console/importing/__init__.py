"""Adopts running jobs into queues without restarting them: `gangline admin import`.

In: the rules that say which job belongs to which LocalQueue, and the cluster as it is. Out: for each job either an adoption (its
Workload, admitted as the job runs) or the reason why it cannot be adopted. `planning`, `pod_planning` and `serving_planning`
decide and are pure; `adopting` writes, in steps that can be repeated.
"""
