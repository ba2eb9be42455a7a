"""Cluster to engine and back: a mirror of what the cluster says, plans that follow from it, a writer that carries them out."""
