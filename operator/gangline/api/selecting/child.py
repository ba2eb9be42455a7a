"""Evaluates expressions of users in a process of its own, which the operator can lose.

    python -m gangline.api.selecting.child

In: one JSON list a line, [expression] or [expression, [[driver, devices], …]]. Out, a line for each: why the expression does not
compile, or the verdicts. An expression that takes too much processor time or memory ends the process. It also ends when nothing
was asked for a while, and with its parent.
"""

from __future__ import annotations

import resource
import select
import sys
from typing import Final

import orjson

from gangline.api.selecting.judge import Group, LocalJudge

#: CPU seconds for one expression, and the devices for which there is one more; bytes of memory in all; seconds without a question
MOST_SECONDS: Final = 2
FAST: Final = 50_000
MOST_MEMORY: Final = 1 << 30
LONGEST_PAUSE: Final = 300.0


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    judge = LocalJudge()
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    # an empty buffer: each answer is asked for before the next question is written
    while select.select([asked], [], [], LONGEST_PAUSE)[0] and (line := asked.readline()):
        expression, *groups = orjson.loads(line)
        _allow(MOST_SECONDS + sum(len(devices) for _, devices in (groups or [()])[0]) // FAST)
        if groups:
            rows = [Group(driver, orjson.dumps(devices)) for driver, devices in groups[0]]
            answer = orjson.dumps(judge.judge(expression, rows))
        else:
            answer = orjson.dumps(judge.fault(expression))
        answers.write(answer + b"\n")
        answers.flush()


def _allow(seconds: int) -> None:
    """So much more CPU time; a signal ends the process when it is used up."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
