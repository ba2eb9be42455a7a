"""The base of parts that reconcile: the context that all parts share, and the `Reconciler`.

In: changed keys, answers to writes, times that are due. Out: each key that is ready, in turn by namespace, to the part that looks
at its object.
"""
