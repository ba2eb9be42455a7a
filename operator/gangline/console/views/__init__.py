"""What a user can see of a cluster, and the job that a command is to change, with that user's own rights.

More than a dozen modules: one for each way to ask, and one for each kind of thing that several commands show.
"""
