"""Where the pods of a topology-aware request are placed.

In: topologies, nodes and their usage; a request by pod set. Out: domains for its pods, or why there are none.

More than a dozen modules: each is one step of one algorithm (resolve, count, search, deal, place, replace).
"""
