"""Live rows: all jobs, queues, nodes and planned runs, kept current for those who watch them, such as the dashboard."""
