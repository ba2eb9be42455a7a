"""The API: one model per kind and version, the CRD generator, readers, conversion, admission rules, quantities, names."""
