"""The end of writing at shutdown."""

from __future__ import annotations

from gangline.control.parts.part import Part
from gangline.control.writes.writer import Writer


class LastWrites(Part):
    """A part that only closes: from then on nothing is written."""

    name = "writes"

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def close(self) -> None:
        self._writer.abort()
