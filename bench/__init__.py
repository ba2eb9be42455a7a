"""Benchmarks of admission: the loads of Kueue's own scalability benchmark, and their cost."""
