"""The operator's part between cluster and engine: a mirror of the cluster, the plans that follow from it, and a writer that
carries them out.
"""
