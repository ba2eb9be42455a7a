"""An example on a cluster of its own: submitted, followed, and judged at its end."""
