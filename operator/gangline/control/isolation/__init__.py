"""Isolation: an object that cannot be handled affects that object alone.

In: a piece of work about one object. Out: its result, or a quarantined object with an event and a count; limits on the CPU time
that reading an object may take, on its size, and on what one namespace stores.
"""
