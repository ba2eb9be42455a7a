"""Everything that is written to the cluster leaves here.

In: writes with a priority. Out: requests, one at a time per object, fenced, as fast as the API server takes them; whoever
asked hears how it went.
"""
