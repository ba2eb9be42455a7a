"""Jobs of every kind: what each needs next, from its Workload to its last pod.

`planner` sees one job whole, asks a pure plan (`job_plan`, `group_plan`, `serving_plan`, `variant_plan`) for its next steps
(`steps`), and carries these out. The other modules look after Workloads that no plan sees: without owner, of another class,
replaced by a newer slice, or too old to be kept.

More than a dozen modules: three for each way in which jobs have pods, and what all of them share.
"""
