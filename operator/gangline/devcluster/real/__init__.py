"""Real nodes on this machine: kubelets with containerd and runc, in namespaces of their own.

In: how many nodes, with how many GPUs each. Out: nodes that run pods, reach each other, and can be stopped, cut off and drained.
A network namespace, the *hub*, holds the control plane, kube-proxy, DNS and a bridge; every node has namespaces of its own
(network, mounts, processes, host name), with a link to the bridge. Everything ends with the processes; only cgroups have to be
removed (`cgroups`).
"""
