"""What is known of classes of runs at an instant: their statistics, features of a run, and estimates that need no model."""
