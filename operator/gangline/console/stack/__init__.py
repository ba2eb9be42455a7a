"""What `gangline up` brings up beside a cluster: kinds, rights, webhooks and operator as processes."""
