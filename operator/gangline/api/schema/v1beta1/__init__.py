"""`kueue.x-k8s.io/v1beta1`: still served, deprecated. Only what differs from v1beta2 is written here."""
