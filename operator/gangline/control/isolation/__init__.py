"""One object's trouble costs that object alone.

In: a piece of work about one object. Out: its result, or the object set aside with an event and a count; a limit on the time
that reading it takes.
"""
