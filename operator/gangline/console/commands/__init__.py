"""The subcommands of `gangline`, one module per command: options in, output and exit status out.

A package per heading of `gangline --help`; none imports another. Code that several share is in `views`, `stack` and `run`.
"""
