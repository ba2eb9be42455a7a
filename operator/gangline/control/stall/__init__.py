"""Runs that hang.

In: progress reports, telemetry of pods. Out: a verdict for each running gang, and what its policy wants done.
"""
