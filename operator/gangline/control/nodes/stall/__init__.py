"""Detects runs that hang.

In: progress reports, pod telemetry. Out: a verdict for each running gang, and the action that its policy asks for.
"""
