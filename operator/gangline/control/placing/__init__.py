"""What placement policies need from outside of the engine, and give to others.

In: scorers that users installed, requests of kube-scheduler about pods outside of gangs. Out: guarded scorers for the engine, and
what became of each; which nodes a policy allows a pod, and how good they are.
"""
