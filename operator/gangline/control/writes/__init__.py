"""The only way to write to the cluster.

In: writes with a priority. Out: requests, one at a time per object, fenced, as fast as the API server accepts them; the result
goes to the submitter's callbacks.
"""
