"""What people configure: the statuses of queues, cohorts and policies, and the finalizers of objects that others use."""
