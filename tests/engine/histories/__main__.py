"""Records all histories anew: `python -m tests.engine.histories`, after a change that is meant to change decisions.

Prints where each one parts from what was recorded, to be read before it is committed.
"""

from __future__ import annotations

import gzip

from tests.engine.histories.history import History
from tests.engine.histories.recorded import RECORDED, difference, names, recorded


def record() -> None:
    RECORDED.mkdir(exist_ok=True)
    for theme, number in names():
        path = RECORDED / f"{theme}-{number}.txt.gz"
        old = recorded(theme, number) if path.exists() else []
        new = History(theme, number).live()
        if old != new:
            print(f"{theme}-{number}: {difference(old, new)}")
            with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as zipped:
                zipped.write("\n".join(new).encode())


if __name__ == "__main__":
    record()
