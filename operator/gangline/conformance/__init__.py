"""Recorded scenarios of Kueue, decided again by the engine.

In: a recording. Out: where the engine decides otherwise, field by field.
"""
