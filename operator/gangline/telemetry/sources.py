"""The source of a setting: `http(s)://…` is a Prometheus, anything else a file with one reading per line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gangline.telemetry.file import FileSource
from gangline.telemetry.prometheus import PrometheusSource
from gangline.telemetry.readings import ReadingSource


def open_source(where: str, queries: Mapping[str, str] | None = None) -> ReadingSource:
    """Create the source; it opens nothing before the first reading. Raises ValueError for a query of an unknown name."""
    if where.startswith(("http://", "https://")):
        return PrometheusSource(where, queries)
    return FileSource(Path(where))
