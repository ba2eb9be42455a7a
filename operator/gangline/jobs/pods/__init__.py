"""Plain pods and pod groups as queued jobs: pure functions on pods.

In: pods with the label `kueue.x-k8s.io/managed`, as JSON. Out: a pod group as one value, its pod sets and its Workload, which of
its pods are too many or replaced, whether it has finished, and what starts and stops a pod.
"""
