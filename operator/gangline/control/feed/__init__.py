"""Everything that reads events: the mirror (the cluster as last seen), the index of pods, and what requests of pods count.

In: watch events and answers to writes. Out: the newest objects, their owners, the jobs to be planned; facts for the engine. CEL
selectors of users are evaluated in a process of its own: expressions and devices in, verdicts out.

More than a dozen modules: one for the mirror and one for each kind of knowledge that it keeps.
"""
