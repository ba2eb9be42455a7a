"""The answers to people about jobs: positions, reasons, expected starts, plans, and what would start a job earlier.

In: the mirror, the engine, forecasts, and which namespaces the asker may read. Out: answers as JSON. Jobs that the asker may not
read are reduced to their size and times before anything is said about them.
"""
