"""The operator's record of its cluster (`gangline admin operator --record`): what the mirror sees, as `gangline.record` writes.

In come events, on the leader only; nothing goes out but lines in files.
"""
