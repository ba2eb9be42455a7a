"""`kueue.x-k8s.io/v1beta2`: the version that is stored. One module per kind."""
