"""No object of a tenant costs much more than its size, in CPU and in memory, wherever it arrives.

`make fuzz-cost` seeks for longer. CPU is compared with what it takes to look once at every value of the same object, in the same
process and moment, so a slow or busy machine changes nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from tests.fuzz import cost, costly, operator_loop
from tests.fuzz.cost import Search, Subject
from tests.jobs import every_kind
from tests.jobs.foreign import OWN

from gangline import jobs

#: kinds that administrators write, who are trusted: their objects are measured by `make fuzz-cost`
ADMINISTRATORS = ("AdmissionCheck", "ClusterQueue", "Cohort", "MultiKueue", "ProvisioningRequestConfig", "QueuePolicy")
ADMINISTRATORS += ("ResourceFlavor", "Topology", "WorkloadPriorityClass")
ASKED = {
    subject.name: subject
    for subject in (*cost.reviews(), *cost.conversions())
    if not any(kind in subject.name for kind in ADMINISTRATORS)
}
#: kinds that one function declares, as PyTorchJob, which is tried for all of them; `make fuzz-cost` tries each
ALIKE = ("TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
#: pods are stored, not groups of them
GANGS = (name for name in every_kind.NAMES if name not in ALIKE and not name.startswith("Pod"))
STORED = (*GANGS, "Pod", "Workload", "LocalQueue")
#: objects that are tried for each subject: `make fuzz-cost` tries more
TRIES = 8
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


@pytest.fixture
def own_kind() -> Iterator[None]:
    jobs.declare([OWN])
    yield
    jobs.declare([])


@pytest.mark.parametrize("name", ASKED)
def test_the_most_expensive_review_costs_little_more_than_a_look_at_its_object(name: str) -> None:
    check(ASKED[name])


@pytest.mark.parametrize("name", STORED)
def test_the_most_expensive_stored_object_costs_little_more_than_a_look_at_it(name: str, own_kind: None) -> None:
    obj = dict(operator_loop.stored())[name]
    check(Subject(name, obj, operator_loop.shown, keeps=True))


def test_the_most_expensive_request_costs_little_more_than_a_look_at_its_body() -> None:
    for subject in cost.requests():
        check(subject)


def check(subject: Subject) -> None:
    search = Search(subject, random.Random(subject.name))
    search.run(until=lambda: search.tried >= TRIES)
    ordinary = cost.cost(subject, (), 0).cpu
    for found in search.best[: cost.FINALISTS]:
        large = cost.cost(subject, found.burdens, LARGEST * 1024)
        look = looked_at(costly.burdened(subject.seed, found.burdens, LARGEST * 1024))
        assert large.cpu <= LOOKS * look + ORDINARY * ordinary, f"{subject.name}: {large.told()}"
        if subject.keeps:
            assert cost.kept(subject, large) <= KEPT, f"{subject.name}: {large.told()}"


def test_work_that_grows_faster_than_an_object_is_found() -> None:
    def prepare(obj: Any) -> Any:
        def pairs() -> int:
            rows = obj["rows"] if isinstance(obj["rows"], list) else []
            return sum(one == other for one in rows for other in rows[:2000])

        return pairs

    search = Search(Subject("pairs", {"rows": [{"name": "a"}]}, prepare, largest=32), random.Random(1))
    search.run(until=lambda: search.tried >= TRIES)
    worst = max(search.grown(), key=lambda each: each.cpu)
    assert worst.cpu > LOOKS * looked_at(costly.burdened(search.subject.seed, worst.burdens, worst.size))
