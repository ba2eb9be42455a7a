"""A standby, which may stand by for months, keeps nothing of objects that are no more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.builders.objects import a_pod
from tests.objects import Stored, as_stored

from gangline.control.controller import Controller
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.parts import changed_keys
from gangline.control.parts.changed_keys import KeySet
from gangline.control.writes.writer import Writer
from gangline.engine import IsolatedEngine
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Upsert
from gangline.kube.resources import Resource


class Tape:
    def record(self, *args: Any, **named: Any) -> None:
        pass


def an_object(resource: Resource, name: str, **spec: Any) -> Stored:
    meta = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    return as_stored({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": spec})


def test_what_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed_keys, "LEAST", 20)
    controller = Controller(None, Writer(None), IsolatedEngine(), Tape(), Metrics())  # type: ignore[arg-type]
    template = {"spec": {"containers": [{"name": "c"}]}}
    for number in range(300):
        job = an_object(kube.JOBS, f"j{number}", template=template, suspend=True)
        workload = an_object(kube.WORKLOADS, f"w{number}", podSets=[], queueName="lq")
        pod = a_pod(f"p{number}", workload=f"w{number}")
        for resource, obj in ((kube.JOBS, job), (kube.WORKLOADS, workload), (kube.PODS, pod)):
            controller.sink(resource)(Upsert(obj))
            if number < 295:
                controller.sink(resource)(Removed(obj.key, obj.uid))
        controller.absorb()
    waiting = [kept for part in controller.parts for kept in vars(part).values() if isinstance(kept, KeySet)]
    assert len(waiting) > 10
    assert max(map(len, waiting)) <= 20
    assert any((kube.JOBS, "ns/j299") in kept for kept in waiting), (
        "what is still there is looked at when this process leads"
    )


async def test_forecasts_begin_once_everything_listed_is_taken_in() -> None:
    controller = Controller(None, Writer(None), IsolatedEngine(), Tape(), Metrics())  # type: ignore[arg-type]
    controller.sink(kube.WORKLOADS)(Upsert(an_object(kube.WORKLOADS, "w", podSets=[], queueName="lq")))
    waiting = asyncio.ensure_future(controller.caught_up())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    controller.absorb()
    async with asyncio.timeout(5):
        await waiting
    await controller.caught_up()
