"""What users write: one model per kind and version, the CRD generator, conversion, quantities, names."""
