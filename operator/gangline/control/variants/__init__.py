"""Concurrent admission: a job is tried on all flavors of its ClusterQueue at a time, as one variant Workload per flavor.

In: parents (the Workloads of jobs), their variants, the `concurrentAdmissionPolicy` of their ClusterQueue. Out: variants
created, activated, deactivated and deleted; the parent admitted and evicted as its variants are; preemption gates opened.
"""
