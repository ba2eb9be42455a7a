"""Readers: JSON of the API server to values, and back where that is the exact reverse.

In: objects of every kind as the API server may deliver them, every optional field absent or null. Out: values of
`engine.model`; ParseError names the field.
"""
