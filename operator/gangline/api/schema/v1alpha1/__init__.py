"""`gangline.io/v1alpha1`: our own kinds."""
