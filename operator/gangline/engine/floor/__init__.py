"""The floor: what the time policy of a cohort costs, against best effort and EASY, and which of them the cohort follows.

In: every fact that the engine gets, with its time. Out: the mode of each cohort tree (`Mode`), which its ClusterQueues are put
under (`under`). The alternatives are played by engines of their own beside the real one (`world`); `waits` compares them, and
`verdicts` decides which one a tree (`modes`) follows.
"""
