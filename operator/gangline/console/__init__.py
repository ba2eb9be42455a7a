"""The `gangline` command line and the text and tables it prints.

In: options and a cluster. Out: text, tables and JSON; clusters and processes that the options ask for.
"""
