"""How fast Gangline admits: the loads of Kueue's own scalability benchmark, and what they cost."""
