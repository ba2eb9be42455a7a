"""The screen of a run with a course that is made up, as a program: `python -m tests.console.feed STEP-SECONDS [JOBS]`.

Seconds of the course pass as steps do; after it the screen stays, as it does in a run.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from tests.console.objects import cluster_queue, condition, flavor, local_queue, pending, running, workload

from gangline.console.run.screen import screen
from gangline.console.stack.stack import ended_by_signals
from gangline.console.views.watch import changes
from gangline.control.answers.workloads.snapshot import AnswerSnapshot, snapshot

SHORT = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a100, 8 more needed"
QUEUES = [
    cluster_queue("language", flavor("a100", 24), flavor("h100", 40, 40)),
    cluster_queue("vision", flavor("a100", 40, 32), flavor("h100", 24)),
]
SAID = "2 of 3 jobs finished, none [bold]at[/bold] all :smile:"


def course(jobs: int) -> list[list[Any]]:
    """Looks at three jobs, of which two end, and at others that wait."""
    others = [pending(f"sweep-{number:02}", "WaitingForQuota", SHORT) for number in range(jobs)]
    ended = workload("resnet", condition("Finished", True, "Succeeded", "Job finished"))
    return [
        [running("resnet"), pending("bert", "WaitingForQuota", SHORT), *others],
        [running("resnet"), pending("bert", "WaitingForQuota", f"{SHORT} \x1b[2Jgone"), *others],
        [ended, running("bert"), *others],
        [ended, running("bert"), running("late"), *others],
    ]


def seen_of(objects: list[Any]) -> AnswerSnapshot:
    return snapshot(objects, QUEUES, [local_queue()])


async def tell(step: float, jobs: int) -> None:
    with screen() as shown:
        before: AnswerSnapshot | None = None
        started = time.monotonic()
        for number, objects in enumerate(course(jobs)):
            seen = seen_of(objects)
            shown.show(seen, changes(before, seen), 2.0 * number)
            before = seen
            await asyncio.sleep(step)
        shown.say(SAID)
        while before is not None:
            shown.show(before, [], 6.0 + time.monotonic() - started)
            await asyncio.sleep(0.2)


def main() -> None:
    try:
        with ended_by_signals():
            asyncio.run(tell(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
    except KeyboardInterrupt:
        print("interrupted")


if __name__ == "__main__":
    main()
