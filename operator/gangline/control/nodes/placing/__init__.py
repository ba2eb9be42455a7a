"""The link between placement policies in the engine and what is outside of it.

In: scorers that users installed, requests of kube-scheduler about pods outside of gangs. Out: guarded scorers for the engine, and
what became of each; which nodes a policy allows a pod, and how good they are.
"""
