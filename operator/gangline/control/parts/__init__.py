"""What the operator's parts have in common: the protocol of a part, the messages between parts, and sets of changed keys.

A part gets what it needs in its constructor. What one part tells another goes through `messages`.
"""
