"""Prints lists of anything: columns, formats, filters, order and `--watch`, in one design for all commands."""
