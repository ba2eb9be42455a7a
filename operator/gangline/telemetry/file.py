"""Readings from a file, one JSON object a line: for tests, and for exporters that Gangline does not know.

    {"time": 1767225600, "namespace": "team", "pod": "train-0-x7", "gpu": 0.93, "logBytes": 81234}

`time` is in Unix seconds (left out: when the file was changed); `gpu`, `kernelAge`, `power`, `logBytes` and `xid` as in
`telemetry.readings.Reading`. The last line about a pod counts. Lines that can't be read are passed over.
"""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any, Final

from gangline import bounded, files
from gangline.telemetry.readings import Reading, SourceError

#: JSON name -> field
FIELDS: Final = {"gpu": "gpu", "kernelAge": "kernel_age", "power": "power", "logBytes": "log_bytes", "xid": "xid"}
#: Only the end of a longer file is read, in bytes.
TAIL: Final = 4 << 20
#: the longest line, in bytes, and the deepest, in levels
LONGEST: Final = 4096
DEEPEST: Final = 4


class FileSource:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def read(self) -> list[Reading]:
        return await asyncio.to_thread(self._read)

    async def close(self) -> None:
        pass

    def _read(self) -> list[Reading]:
        try:
            changed = self._path.stat().st_mtime
            lines = files.read_tail(self._path, TAIL).splitlines()
        except OSError as error:
            raise SourceError(f"{self._path}: {error.strerror}") from error
        newest: dict[str, Reading] = {}
        for line in lines:
            reading = _reading(line, changed)
            if reading is not None:
                newest[reading.key] = reading
        return list(newest.values())


def _reading(line: bytes, changed: float) -> Reading | None:
    try:
        body = bounded.load_json(line, most_bytes=LONGEST, most_depth=DEEPEST)
        values: dict[str, Any] = {field: float(body[name]) for name, field in FIELDS.items() if name in body}
        if not all(map(math.isfinite, values.values())):
            return None
        if "xid" in values:
            values["xid"] = int(values["xid"])
        return Reading(str(body["namespace"]), str(body["pod"]), float(body.get("time", changed)), **values)
    except (ValueError, TypeError, KeyError):
        return None
