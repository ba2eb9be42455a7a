"""What people look at: a cluster read once into plain values, and those as tables, lines and sentences.

In: a kubeconfig, or JSON of the cluster. Out: rows and text. Writes nothing.
"""
