"""The operator as a process: login, watches, leader election, metrics, shutdown.

In: options. Out: a process that leads or stands by, and shuts down in order.
"""
