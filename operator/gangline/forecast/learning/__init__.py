"""The model of quantiles: its training table, training, calibration, and the guard that decides whether it is used."""
