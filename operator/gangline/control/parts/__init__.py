"""What all parts of the operator share: the protocol of a part, the messages between parts, and sets of changed keys.

A part receives its dependencies in its constructor. Parts inform each other through `messages`.
"""
