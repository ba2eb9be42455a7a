"""Device and log readings of running pods, from exchangeable sources."""

from gangline.telemetry.readings import Reading, ReadingSource, SourceError
from gangline.telemetry.sources import open_source

__all__ = ["Reading", "ReadingSource", "SourceError", "open_source"]
