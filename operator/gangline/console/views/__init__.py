"""The views of a cluster that a user can get with own rights, and the job that a command is to change.

More than a dozen modules: one for each way to ask, and one for each kind of thing that several commands show.
"""
