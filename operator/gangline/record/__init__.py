"""The history of a live cluster: written as it happens, read again, replayed, and searched for better settings.

In come objects as the API server delivers them; out go lines of a record (`docs/record.md` has the format), and from a record the
facts of an engine over time. Nothing here writes to a cluster.
"""
