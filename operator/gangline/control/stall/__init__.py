"""Stalled runs: running gangs that hang.

In: progress reports, telemetry of pods. Out: a verdict for each running gang, and the action of its policy.
"""
