"""The operator as a process: login, watches, leader election, metrics, shutdown.

In: options. Out: a process that leads or stands by, and shuts down in order.

More than a dozen modules: one for each thing that a process has (watches, a lease, endpoints, health, memory), and one that joins
them.
"""
