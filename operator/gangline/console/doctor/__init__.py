"""Checks for `gangline admin doctor`: of this machine, of an installation, and of a cluster that is to change over from Kueue.

A check reads and never writes (its creates are dry runs); its findings are plain values. A check that fails, or that may not read
what it needs, says so and costs only itself.
"""
