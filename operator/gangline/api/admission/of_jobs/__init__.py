"""Rules of jobs and pods of every kind. More than a dozen modules: one for each kind, or for what they share."""
