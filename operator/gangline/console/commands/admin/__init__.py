"""The commands of administrators, under `gangline admin`.

More than a dozen modules, since each is one command, or what one prints.
"""
