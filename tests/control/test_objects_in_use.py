"""Configuration objects that others use are kept by a finalizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.context import a_context
from tests.control.test_minimal_objects import whole

from gangline.control.feed.mirror import Mirror
from gangline.control.queues.objects_in_use import ObjectsInUse
from gangline.engine import Engine
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Conflict, Forbidden
from gangline.kube.reflector import Upsert
from gangline.kube.resources import ObjectKey

Json = dict[str, Any]
OURS = "kueue.x-k8s.io/resource-in-use"
CHECKED = {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}]}}


class Writes:
    """Sends at once and keeps what is sent; `refusals` are the answers to the next writes."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Any]] = []
        self.refusals: list[ApiError] = []

    def send(
        self,
        key: ObjectKey,
        verb: str,
        body: Callable[[], Json | None],
        *,
        done: Callable[[Json | None], None],
        failed: Callable[[ApiError], None],
        **_: object,
    ) -> None:
        if self.refusals:
            failed(self.refusals.pop())
            return
        rendered = body()
        if rendered is not None:
            self.sent.append((key.resource.kind, key.name, rendered["metadata"]["finalizers"]))
        done(None)


class ObjectInUse:
    def __init__(self) -> None:
        engine = Engine()
        self.mirror, self.writes = Mirror(engine.observe), Writes()
        self.mirror.know_pods()
        self.woken = 0
        self.part = ObjectsInUse(a_context(mirror=self.mirror, writes=self.writes, engine=engine, wake=self._wake))  # type: ignore[arg-type]

    def _wake(self) -> None:
        self.woken += 1

    def put(self, kind: str, spec: Json, **meta: Any) -> None:
        obj = whole(kind, {"spec": spec}, "a")
        obj["metadata"] |= meta
        self.mirror.upsert(kube.BY_KIND[kind], obj)
        if kube.BY_KIND[kind] in self.part.kinds:
            self.part.observe(kube.BY_KIND[kind], Upsert(obj))

    def act(self) -> list[tuple[str, str, Any]]:
        self.writes.sent = []
        self.part.act(0)
        return self.writes.sent


KINDS = [
    ("Topology", {"levels": [{"nodeLabel": "rack"}]}, "ResourceFlavor", {"topologyName": "a"}),
    ("AdmissionCheck", {"controllerName": "example.com/c"}, "ClusterQueue", CHECKED),
]


@pytest.mark.parametrize(("kind", "spec", "user", "using"), KINDS, ids=[row[0] for row in KINDS])
def test_it_gets_a_finalizer_which_goes_when_the_last_user_does(kind: str, spec: Json, user: str, using: Json) -> None:
    world = ObjectInUse()
    world.put(kind, spec, finalizers=["example.com/other"])
    assert world.act() == [(kind, "a", ["example.com/other", OURS])]
    world.put(kind, spec, finalizers=["example.com/other", OURS], resourceVersion="2")
    assert world.act() == []
    world.put(user, using)
    gone = {"finalizers": ["example.com/other", OURS], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    world.put(kind, spec, **gone, resourceVersion="3")
    assert world.act() == [], "it is in use"
    world.mirror.remove(kube.BY_KIND[user], "a")
    assert world.act() == [(kind, "a", ["example.com/other"])]


def test_an_object_that_is_being_deleted_gets_none() -> None:
    world = ObjectInUse()
    world.put("AdmissionCheck", {"controllerName": "example.com/c"}, deletionTimestamp="2026-01-01T00:00:00Z")
    assert world.act() == []


def test_a_new_leader_looks_at_all() -> None:
    world = ObjectInUse()
    world.put("AdmissionCheck", {"controllerName": "example.com/c"})
    world.act()
    world.part.lead()
    assert world.act() == [("AdmissionCheck", "a", [OURS])]


def test_a_conflict_is_followed_by_another_round_and_a_refusal_is_not() -> None:
    for refusal, rounds in ((Conflict(409, "Conflict", "newer"), 1), (Forbidden(403, "Forbidden", "no"), 0)):
        world = ObjectInUse()
        world.put("AdmissionCheck", {"controllerName": "example.com/c"})
        world.writes.refusals = [refusal]
        assert (world.act(), world.woken) == ([], rounds)
    world = ObjectInUse()
    gone = {"finalizers": [OURS], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    world.put("ResourceFlavor", {}, **gone)
    world.writes.refusals = [Conflict(409, "Conflict", "newer")]
    assert (world.act(), world.woken) == ([], 1)
    assert world.act() == [("ResourceFlavor", "a", None)], "no event was needed for that"
