"""The API: one model per kind and version, the CRD generator, readers, conversion, admission rules, quantities, names.

More than a dozen modules, as each annotation, format and kind of ours that several packages read has its own.
"""
