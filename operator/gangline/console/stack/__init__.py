"""The parts that `gangline up` adds to a cluster: CRDs, RBAC, and the webhooks and the operator as processes."""
