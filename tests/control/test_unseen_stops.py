"""Jobs that were stopped before their controllers had said anything: their quota waits, but not for ever."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from tests.builders.objects import a_pod
from tests.objects import JobObject

from gangline.control.feed.changes import JobRef
from gangline.control.feed.pod import read_pod
from gangline.control.feed.watched_kinds import JOB_KINDS
from gangline.control.kinds.start_and_stop import UnseenStops
from gangline.kube import resources as kube

Json = dict[str, Any]
REF: JobRef = (kube.JOBS, "team/train")
KIND = JOB_KINDS[kube.JOBS]
PATIENCE = 0.05


def job(uid: str = "u", *, generation: int = 3, status: Json | None = None) -> JobObject:
    meta = {"name": "train", "namespace": "team", "uid": uid, "generation": generation}
    return JobObject({"metadata": meta, "spec": {"suspend": True, "template": {"spec": {}}}, "status": status or {}})


SAID: Json = {"conditions": [{"type": "Suspended", "status": "True"}]}


async def test_a_controller_that_says_nothing_is_waited_for_for_a_while() -> None:
    again: list[JobRef] = []
    stops = UnseenStops(again.append, PATIENCE)
    assert stops.may_start_pods(REF, KIND, job(), ())
    assert stops.may_start_pods(REF, KIND, job(), ()), "looking twice is no answer"
    async with asyncio.timeout(5):
        while not again:
            await asyncio.sleep(0.01)
    assert again == [REF]
    assert not stops.may_start_pods(REF, KIND, job(), ())
    assert stops.may_start_pods(REF, KIND, job("another"), ()), "another job of its name has its own time"


async def test_a_word_of_its_controller_ends_the_wait_and_the_next_stop_has_a_new_one() -> None:
    stops = UnseenStops(lambda ref: None, PATIENCE)
    assert stops.may_start_pods(REF, KIND, job(), ())
    assert not stops.may_start_pods(REF, KIND, job(status=SAID), ())
    assert not stops.may_start_pods(REF, KIND, job(generation=1), ()), "it was never started"
    await asyncio.sleep(2 * PATIENCE)
    assert stops.may_start_pods(REF, KIND, job(), ())


async def test_pods_that_are_there_are_waited_for_however_long_they_stay() -> None:
    stops = UnseenStops(lambda ref: None, 0.0)
    running = read_pod(a_pod("p"), "ns/w")
    assert stops.may_start_pods(REF, KIND, job(), [running])
    assert not stops.may_start_pods(REF, KIND, job(), [replace(running, ended=True)])
