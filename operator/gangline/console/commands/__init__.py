"""The subcommands of `gangline`, one module per command: options in, output and exit status out.

More than a dozen modules, since there are that many commands; code that several share is in `views`, `stack` and `run`.
"""
