"""No object of a tenant costs much more than its size, in CPU and in memory, wherever it arrives.

`make fuzz-cost` seeks for longer. CPU is compared with what it takes to look once at every value of the same object, in the same
process and moment, so a slow or busy machine changes nothing.
"""

from __future__ import annotations

import random
import time
from typing import Any

import orjson
import pytest
from tests.fuzz import cost, costly
from tests.fuzz.cost import Search, Subject

SUBJECTS = {subject.name: subject for subject in cost.subjects()}
#: objects that are tried for each subject
TRIES = 40
#: KiB of the largest
LARGEST = 200
#: how many times as long as one look at every value, and as an ordinary object
LOOKS, ORDINARY = 40, 25
#: KiB of memory for a KiB of JSON that the operator keeps. A list of a list takes 2 bytes of JSON and 64 of memory
KEPT = 45


def looked_at(obj: Any) -> float:
    """CPU seconds to read this JSON and look at each of its values once."""
    data, took = orjson.dumps(obj), list[float]()
    for _ in range(3):
        begun = time.thread_time()
        level = [orjson.loads(data)]
        while level:
            value = level.pop()
            if isinstance(value, dict):
                level += value.values()
            elif isinstance(value, list):
                level += value
        took.append(time.thread_time() - begun)
    return min(took)


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_most_expensive_object_found_costs_little_more_than_a_look_at_it(name: str) -> None:
    subject = SUBJECTS[name]
    search = Search(subject, random.Random(name))
    search.run(until=lambda: search.tried >= TRIES)
    ordinary = cost.cost(subject, (), 0).cpu
    for found in search.best[: cost.FINALISTS]:
        large = cost.cost(subject, found.burdens, LARGEST * 1024)
        look = looked_at(costly.burdened(subject.seed, found.burdens, LARGEST * 1024))
        assert large.cpu <= LOOKS * look + ORDINARY * ordinary, large.told()
        if subject.keeps:
            assert cost.kept(subject, large) <= KEPT, large.told()


def test_work_that_grows_faster_than_an_object_is_found() -> None:
    def prepare(obj: Any) -> Any:
        def pairs() -> int:
            rows = obj["rows"] if isinstance(obj["rows"], list) else []
            return sum(one == other for one in rows for other in rows[:400])

        return pairs

    search = Search(Subject("pairs", {"rows": [{"name": "a"}]}, prepare), random.Random(1))
    search.run(until=lambda: search.tried >= TRIES)
    worst = max(search.grown(), key=lambda each: each.cpu)
    assert worst.cpu > LOOKS * looked_at(costly.burdened(search.subject.seed, worst.burdens, worst.size))
