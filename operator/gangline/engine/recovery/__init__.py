"""What becomes of running gangs whose nodes are lost.

In: health of nodes, where pods are. Out: `Heal`, `Swap`, `Preempt` and `Evict` decisions; a breaker that holds them back.
"""
