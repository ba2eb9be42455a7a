"""Who has used what: shares, past runs, and what happened lately."""
