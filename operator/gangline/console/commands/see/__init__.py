"""See jobs and queues."""
