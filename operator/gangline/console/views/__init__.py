"""Views of a cluster: snapshots of its objects as plain values, rendered as tables, lines and sentences.

In: a kubeconfig, or JSON of the cluster's objects. Out: rows and text. Nothing is written to the cluster.
"""
