"""What `gangline replay` reads beside a trace: policies from files of QueuePolicies."""
