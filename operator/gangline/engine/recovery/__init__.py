"""Recovery of running gangs whose nodes are lost.

In: health of nodes, locations of pods. Out: `Heal`, `Swap`, `Preempt` and `Evict` decisions; a circuit breaker that stops them.
"""
