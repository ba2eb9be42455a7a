"""The common base of all parts of the operator: the protocol of a part, the messages between parts, sets of changed keys, and
pauses after refusals.

A part receives its dependencies in its constructor. Parts inform each other through `messages`.
"""
