"""The Kubernetes API as a client sees it: requests, errors, logins, and list-watch.

In: a kubeconfig, resources by name. Out: objects as plain JSON, events of watches. Decides nothing.

More than a dozen modules: each is one part of what passes between a client and an API server (login, certificates, tokens,
errors, time, versions, watches).
"""
