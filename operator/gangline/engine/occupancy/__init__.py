"""Room on nodes: what every node has, and who uses how much of it. One ledger for all flavors, with or without a topology.

In: nodes, pods of others, what workloads take. Out: what is taken of a node, how many pods fit into what is left, and what
changed. `topology` and `nodes` look for room in it, each by its own rules.
"""
