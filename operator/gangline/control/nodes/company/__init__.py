"""What is known of classes of jobs that share cards: JobProfiles, and what is learned from them.

In: JobProfiles. Out: profiles and priors for the engine, statuses.
"""
