"""Programs that run in the background: started, found again, and ended even when their starter was killed."""
