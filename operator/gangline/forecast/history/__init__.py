"""Finished and open runs: what a run is, the classes it belongs to, and the database that keeps them."""
