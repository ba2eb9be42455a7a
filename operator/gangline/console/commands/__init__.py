"""The subcommands of `gangline`, one module per command: options in, output and exit status out.

Code that several commands share is in `views`, `stack` and `run`.
"""
