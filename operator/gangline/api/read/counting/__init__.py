"""What the pods of a Workload count for, as Kueue counts them.

In: pod specs as JSON, and the rules that hold for them: LimitRanges, RuntimeClasses, ResourceClaimTemplates and Kueue's
configuration. Out: completed specs, amounts for quota, and why a Workload is not admitted.
"""
