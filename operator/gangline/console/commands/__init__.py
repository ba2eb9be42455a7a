"""The subcommands of `gangline`, one module each: options in, output and exit status out.

More than a dozen modules, as there are so many commands; what they share lies in `views`, `stack` and `run`.
"""
