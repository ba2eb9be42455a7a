"""The small corpus: for each target the inputs that reach, between them, all that the fuzzer has reached so far.

One file per target, one input per line in base64. `make test` replays them without a fuzzer (`test_corpus.py`).
"""

from __future__ import annotations

import base64
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

CORPUS = Path(__file__).parent / "corpus"
#: inputs that are longer are left out: a corpus is read by people who look for what changed
LONGEST = 4096
#: bytes of one target's file
LARGEST = 24_000


def inputs(name: str) -> list[bytes]:
    file = CORPUS / f"{name}.txt"
    return [base64.b64decode(line) for line in file.read_text().splitlines()] if file.exists() else []


def keep(target: Target, found: Path) -> int:
    """Makes the file anew of what it says, of the seeds and of what the fuzzer found. Returns its bytes."""
    more = [file.read_bytes() for file in sorted(found.iterdir())] if found.exists() else []
    every = {data for data in (*target.seeds(), *inputs(target.name), *more) if len(data) <= LONGEST}
    for data in sorted(every)[:1]:  # whatever is set up once is no input's merit
        _steps(target.run, data)
    lines: list[str] = []
    reached: set[Any] = set()
    for data in sorted(every, key=lambda data: (len(data), data)):
        new = _steps(target.run, data) - reached
        line = base64.b64encode(data).decode()
        if new and sum(map(len, lines)) + len(lines) + len(line) < LARGEST:
            reached |= new
            lines.append(line)
    CORPUS.mkdir(exist_ok=True)
    file = CORPUS / f"{target.name}.txt"
    file.write_text("".join(f"{line}\n" for line in lines))
    return file.stat().st_size


def _steps(run: Callable[[bytes], object], data: bytes) -> set[Any]:
    """Every line of Gangline that it passes through, with the line before it."""
    passed: set[Any] = set()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_globals.get("__name__", "").startswith("gangline"):
            return None
        last = 0

        def lines(frame: FrameType, event: str, _: object) -> Any:
            nonlocal last
            if event == "line":
                passed.add((frame.f_code, last, frame.f_lineno))
                last = frame.f_lineno
            return lines

        return lines

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with contextlib.suppress(Exception):
            run(data)
    finally:
        sys.settrace(before)
    return passed
