"""Which workloads wait in which ClusterQueue, in which order, and what those that were admitted hold.

In: facts about queues and workloads, by `engine.state`. Out: the next head, holders in the order in which they would be
preempted.
"""
