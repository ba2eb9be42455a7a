"""The Kubernetes API as a client sees it: requests, errors, logins, and list-watch.

In: a kubeconfig, resources by name. Out: objects as plain JSON, events of watches. Decides nothing.
"""
