"""The other clusters: how each is reached, a connection to each, and what it holds of ours.

In: MultiKueueClusters with what they name, and the objects with the label of this manager in each cluster. Out: whether each is
connected, and what was last seen there, reduced to what the plan reads.
"""
