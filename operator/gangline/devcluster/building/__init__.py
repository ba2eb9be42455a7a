"""Compiles the programs of a development cluster from their Go modules, and keeps them in a cache."""
