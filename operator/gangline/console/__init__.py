"""The command line: `gangline`, and what people look at.

In: options and a cluster. Out: text, tables and JSON; clusters and processes that were asked for.
"""
