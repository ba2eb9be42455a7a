"""Every kind is read as the API server may deliver it: each optional field absent, null or empty."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.api import accepted
from tests.api.generated import with_defaults

from gangline.api.convert import conversion
from gangline.control.controller import Controller
from gangline.control.feed.watched_kinds import resources
from gangline.control.isolation import intake
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.writes.writer import Writer
from gangline.engine import IsolatedEngine
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Upsert
from gangline.objects import Stored, view

Json = dict[str, Any]
RESOURCES = {resource.kind: resource for resource in resources()}


class Tape:
    """In place of the event recorder."""

    def record(self, *args: Any, **named: Any) -> None:
        pass


def operator() -> Controller:
    """A leading controller whose writes never leave."""
    engine = IsolatedEngine()
    controller = Controller(None, Writer(None, gate=lambda: False), engine, Tape(), Metrics())  # type: ignore[arg-type]
    for kind, name, spec in (
        ("Namespace", "ns", {}),
        ("ResourceFlavor", "a", {}),
        ("ClusterQueue", "other", {"namespaceSelector": {}}),
        ("LocalQueue", "a", {"clusterQueue": "a"}),
        ("Node", "n", {}),
    ):
        put(controller, kind, whole(kind, {"spec": spec}, name))
    controller.mirror.know_pods()
    controller.absorb()
    controller.lead()
    controller.act()
    return controller


def put(controller: Controller, kind: str, obj: Json) -> None:
    """The watch of this kind shows the object."""
    resource = RESOURCES[kind]
    controller.sink(resource)(Upsert(intake.received(resource, obj)))


def whole(kind: str, body: Json, name: str = "a", version: str = "") -> Stored:
    resource = RESOURCES[kind]
    meta: Json = {"name": name, "uid": f"uid-{kind}-{name}", "resourceVersion": "7", "generation": 1}
    if resource.namespaced:
        meta["namespace"] = "ns"
    group_version = f"{resource.group}/{version or resource.version}".lstrip("/")
    return view(resource, {"apiVersion": group_version, "kind": kind, "metadata": meta, **body})


def cases() -> list[Any]:
    return [pytest.param(*case, id=f"{case[0]}-{case[2]}") for case in accepted.schemas()]


@pytest.mark.parametrize(("kind", "group", "version", "schema"), cases())
async def test_every_object_that_is_accepted_can_be_read(kind: str, group: str, version: str, schema: Json) -> None:
    resource = RESOURCES[kind]
    fullest, smallest = accepted.fullest(schema), accepted.smallest(schema)
    tried = [("the smallest", smallest), ("the fullest", fullest), ("no spec", {}), ("spec null", {"spec": None})]
    tried += accepted.variants(fullest, schema)
    controller = operator()
    for what, body in tried:
        for defaulted in (body, with_defaults(body, schema)):
            obj = whole(kind, defaulted, version=version)
            if version != resource.version:
                obj = conversion.convert(obj, f"{group}/{resource.version}")
            await through(controller, kind, obj, what)


async def through(controller: Controller, kind: str, obj: Json, what: str) -> None:
    """It comes, is decided on, changes, and goes; nothing may fail but for a reason that names a field."""
    resource, key = RESOURCES[kind], f"ns/{obj['metadata']['name']}" if RESOURCES[kind].namespaced else "a"
    put(controller, kind, obj)
    controller.absorb()
    controller.act()
    for policy in (queue for queue in controller.mirror.objects[kube.CLUSTER_QUEUES].values()):
        controller.mirror.policy_of(policy)
    for lane in list(controller.writes._writer._lanes.values()):
        for item in list(lane.waiting.values()):
            item.write.render()
    controller.stalls.policies()
    controller.notices.wants("Admitted")
    controller.sink(resource)(Removed(key, obj["metadata"]["uid"], obj))
    controller.absorb()
    controller.act()
    assert not [stage for stage, _ in controller.quarantine.failures if stage not in ("reading it",)], what
    troubles = [text for about in controller.quarantine._errors.values() for text in about.values()]
    assert not [text for text in troubles if text.startswith("internal error")], what
    await asyncio.sleep(0)


async def test_the_first_manifest_of_kueues_quick_start_is_a_flavor_with_nothing_but_a_name() -> None:
    controller = operator()
    await through(controller, "ResourceFlavor", whole("ResourceFlavor", {}), "a name")
    assert not controller.quarantine.failures


@pytest.mark.parametrize("kind", ["Job", "JobSet", "GPUJob", "Node", "Namespace", "PriorityClass", "Service"])
async def test_other_kinds_with_nothing_but_a_name(kind: str) -> None:
    controller = operator()
    obj = whole(kind, {"value": 1} if kind == "PriorityClass" else {})
    put(controller, kind, obj)
    controller.absorb()
    controller.act()
    troubles = [text for about in controller.quarantine._errors.values() for text in about.values()]
    assert not [text for text in troubles if text.startswith("internal error")]
