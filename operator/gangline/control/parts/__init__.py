"""The common base of the operator's parts: the protocol of a part, messages between parts, and sets of changed keys.

A part gets what it needs in its constructor. Parts inform each other through `messages`.
"""
