"""How lists of anything are printed: columns, formats, filters, order and `--watch`, in one design for all commands."""
