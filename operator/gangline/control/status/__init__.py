"""What objects say of themselves: conditions and statuses of Workloads, queues and policies, and events for people.

In: decisions and the engine's ledger. Out: changes of a status as plain JSON, queue statuses at most once a second.
"""
