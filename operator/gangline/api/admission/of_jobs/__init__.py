"""Rules of jobs and pods of every kind."""
