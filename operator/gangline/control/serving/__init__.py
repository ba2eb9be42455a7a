"""Runs StatefulSets and LeaderWorkerSets through pod groups: their Workloads, and which of their pods belong to which.

In: these objects and the pods that wait in their place. Out: Workloads, made, adapted and deleted; pods made members of groups,
which `pod_groups` starts and stops. `serving_plan` is pure.
"""
