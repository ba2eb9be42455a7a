"""The differences of each kind between v1beta1 and v1beta2: one module per kind, used by `gangline.api.convert.conversion`."""
