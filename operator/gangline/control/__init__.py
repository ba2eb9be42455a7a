"""The operator, from the cluster to the engine and back: a mirror of the cluster, plans, and writes."""
