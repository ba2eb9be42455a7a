"""How long jobs will run."""
