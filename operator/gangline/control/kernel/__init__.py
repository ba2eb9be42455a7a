"""What every part of the operator is made of: the context that all share."""
