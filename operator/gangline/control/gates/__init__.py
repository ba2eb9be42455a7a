"""Scheduling gates: pods wait behind them until their place is known."""
