"""The end of all writes."""

from __future__ import annotations

from gangline.control.parts.part import Part
from gangline.control.writes.writer import Writer


class LastWrites(Part):
    """A part that only closes: after that nothing is written any more."""

    name = "writes"

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def close(self) -> None:
        self._writer.abort()
