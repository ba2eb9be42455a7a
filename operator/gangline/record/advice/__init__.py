"""Settings searched on a record, and judged on a part of it that the search has not seen."""
