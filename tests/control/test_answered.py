"""Every write of an object gets exactly one answer, whatever else is written meanwhile and however the server behaves.

A part that waits for the answer of a write that was dropped would never plan its job again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from gangline.control.feed.changes import JobRef
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.tracking import Tracking
from gangline.control.parts.messages import Messages, WriteResolved
from gangline.control.writes import writer as writer_module
from gangline.control.writes import writes as writes_module
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.writer import Writer
from gangline.control.writes.writes import Writes
from gangline.kube.errors import ApiError, Conflict, Forbidden, Unavailable
from gangline.kube.resources import JOBS, LEADER_WORKER_SETS, PODS, WORKLOADS, ObjectKey
from gangline.objects import view

Json = dict[str, Any]
KEY = ObjectKey(WORKLOADS, "ns", "w")
OWNERS: tuple[JobRef, ...] = ((PODS, "ns/g"), (LEADER_WORKER_SETS, "ns/l"), (JOBS, "ns/j"))
REFUSALS: dict[str, ApiError] = {
    "lost": Unavailable(503, "Unavailable", "try again"),
    "conflict": Conflict(409, "Conflict", "changed meanwhile"),
    "forbidden": Forbidden(403, "Forbidden", "no right"),
}


@dataclass
class Server:
    """A server with one Workload, which refuses what the test says."""

    outcomes: list[str]
    obj: Json = field(
        default_factory=lambda: {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"namespace": "ns", "name": "w", "uid": "u", "resourceVersion": "1"},
            "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": {"spec": {}}}]},
            "status": {},
        }
    )

    async def patch(self, *_: object, **__: object) -> Json:
        await asyncio.sleep(0)
        outcome = self.outcomes.pop() if self.outcomes else "done"
        if outcome in REFUSALS:
            raise REFUSALS[outcome]
        version = int(self.obj["metadata"]["resourceVersion"]) + 1
        self.obj = {**self.obj, "metadata": {**self.obj["metadata"], "resourceVersion": str(version)}}
        return await self.get()

    async def get(self, *_: object) -> Json:
        await asyncio.sleep(0)
        return {**self.obj, "metadata": dict(self.obj["metadata"])}


@dataclass(frozen=True)
class Step:
    """A write by one of the owners, and how many turns the others get after it."""

    owner: JobRef
    way: str
    slot: str
    doubt: bool
    turns: int


STEPS = st.builds(
    Step,
    owner=st.sampled_from(OWNERS),
    way=st.sampled_from(("patch", "status", "change")),
    slot=st.sampled_from(("", "a", "b")),
    doubt=st.booleans(),
    turns=st.integers(0, 4),
)


@given(
    steps=st.lists(STEPS, min_size=2, max_size=12),
    outcomes=st.lists(st.sampled_from(("done", *REFUSALS)), max_size=8),
)
@examples(150)
def test_every_write_gets_one_answer(steps: list[Step], outcomes: list[str]) -> None:
    with (
        mock.patch.object(writer_module, "FIRST_RETRY", 0.0001),
        mock.patch.object(writes_module, "WATCH_PATIENCE", 0),
    ):
        answered, left = asyncio.run(_written(steps, Server(outcomes)))
    assert answered == Counter(step.owner for step in steps)
    assert left == {}


async def _written(steps: list[Step], server: Server) -> tuple[Counter[JobRef], Json]:
    """How many answers each owner got, and what is still tracked at the end."""
    answered: Counter[JobRef] = Counter()
    messages = Messages()
    messages.subscribe(WriteResolved, lambda each: answered.update([each.owner]))
    async with Writer(server) as writer:  # type: ignore[arg-type]
        mirror = Mirror(observe=lambda change: None)
        writes = Writes(server, writer, mirror, Tracking(), now=lambda: 1_700_000_000_000, messages=messages)  # type: ignore[arg-type]
        mirror.upsert(WORKLOADS, view(WORKLOADS, await server.get()))
        for number, step in enumerate(steps):
            _write(writes, step, number)
            for _ in range(step.turns):
                await asyncio.sleep(0)
        async with asyncio.timeout(5):
            while answered.total() < len(steps):
                await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        return answered, dict(writes._tracking._tracks)


def _write(writes: Writes, step: Step, number: int) -> None:
    if step.way == "change":

        def change(status: Json, now: int) -> None:
            status["clusterName"] = f"cluster-{number}"

        writes.change(
            KEY.text, step.slot or "c", change, priority=Priority.LIFECYCLE, owner=step.owner, doubt=step.doubt
        )
        return
    body = {"metadata": {"annotations": {"number": str(number)}}}
    writes.send(
        KEY,
        step.way,  # type: ignore[arg-type]
        body,
        priority=Priority.LIFECYCLE,
        owner=step.owner,
        slot=f"own {step.way} {step.slot}" if step.slot else "",
        doubt=step.doubt,
    )
