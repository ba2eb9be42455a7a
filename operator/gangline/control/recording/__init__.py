"""The operator's own record of its cluster (`gangline operator --record`): what the mirror sees, as `gangline.record` writes it.

In come events, on the leader only; nothing goes out but lines in files.
"""
