"""Recorded scenarios of Kueue, decided again by the engine.

In: a recording. Out: the differences of the engine's decisions, field by field.
"""
