"""Evaluates expressions of users in a process of its own, which the operator can lose.

    python -m gangline.api.selecting.child

In: lines of JSON. A question is [expression], or [expression, n] and n lines [driver, devices]. Out, a line for each question:
[CPU milliseconds, answer], which is why the expression does not compile, or the verdicts. An expression that takes too much
processor time or memory ends the process. It also ends when nothing was asked for a while, and with its parent.
"""

from __future__ import annotations

import resource
import select
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import orjson

from gangline.api.selecting.judge import LocalJudge, Verdict, judged

#: CPU seconds for one expression, and the devices for which there is one more; bytes of memory in all; seconds without a question
MOST_SECONDS: Final = 2
FAST: Final = 50_000
MOST_MEMORY: Final = 256 << 20
LONGEST_PAUSE: Final = 300.0


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # where memory runs short, this process ends rather than its parent
        Path("/proc/self/oom_score_adj").write_text("1000")
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    # an empty buffer: each answer is read before the next question is written
    while select.select([asked], [], [], LONGEST_PAUSE)[0] and (line := asked.readline()):
        expression, *count = orjson.loads(line)
        used = time.process_time()
        seconds = int(used) + 1 + MOST_SECONDS
        _end_at(seconds)
        answer = _answer(expression, count[0], asked, seconds) if count else LocalJudge().fault(expression)
        answers.write(orjson.dumps([round((time.process_time() - used) * 1000, 3), answer]) + b"\n")
        answers.flush()


def _answer(expression: str, count: int, asked: BinaryIO, seconds: int) -> list[tuple[Verdict, ...]]:
    found: list[tuple[Verdict, ...]] = []
    seen = 0
    for _ in range(count):
        driver, devices = orjson.loads(asked.readline())
        seen += len(devices)
        if len(devices) > seen % FAST:
            _end_at(seconds + seen // FAST)
        found.append(judged(expression, driver, devices))
    return found


def _end_at(seconds: int) -> None:
    """A signal ends the process when it has used so much CPU time in all."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
