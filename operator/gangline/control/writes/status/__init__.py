"""The statuses of objects: conditions and statuses of Workloads, queues and policies.

In: decisions and the engine's ledger. Out: status changes as plain JSON, queue statuses at most once a second.

More than a dozen modules, as each kind of object has its own conditions.
"""
