"""What devices and nodes say of running pods, from sources that can be exchanged."""

from gangline.telemetry.readings import Reading, Source, SourceError
from gangline.telemetry.sources import open_source

__all__ = ["Reading", "Source", "SourceError", "open_source"]
