"""A development cluster: a real control plane on this machine, or in kind, with simulated nodes; also for Gangline's tests.

In: components and pools of nodes. Out: a running cluster and its kubeconfig; its processes end with this one.

More than a dozen modules: one for each component and for each way to get one.
"""
