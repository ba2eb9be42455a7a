"""The engine's state: every fact in its table, every workload at the place that follows from it.

In: `model.Change`. Out: the queues, the ledgers and the reviews that scheduling works on; a snapshot.

More than a dozen modules, as each kind of fact about running workloads has its own beside the tables.
"""
