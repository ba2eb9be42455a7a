"""Isolation: an object that cannot be handled affects nothing else.

In: a piece of work about one object. Out: its result, or the object quarantined with an event and a count; a limit on the time
for reading it.
"""
