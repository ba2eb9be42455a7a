"""A real control plane on this machine, or in kind, with simulated nodes: for trying Gangline out, and for its tests.

In: which components, which pools of nodes. Out: a running cluster and its kubeconfig; processes that end when we do.

More than a dozen modules: one for each component and for each way to get one.
"""
