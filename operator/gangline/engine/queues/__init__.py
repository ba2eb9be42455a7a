"""Which workloads wait in which ClusterQueue and in which order, and what the admitted ones hold.

In: facts about queues and workloads, from `engine.state`. Out: the next head; the holders in the order of preemption.

More than a dozen modules, as each kind of order, hold and relation between workloads has its own.
"""
