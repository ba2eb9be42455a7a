"""Recorded histories: random days of small clusters, and everything that the engine decided and answered in them."""
