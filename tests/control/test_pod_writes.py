"""Writes of pods: one for each known version, and the pods that one of them lets start."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.builders.parts import Listener

from gangline.control.feed.changes import JobRef
from gangline.control.writes.pod_writes import PodWrites
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Conflict, Forbidden, NotFound
from gangline.kube.resources import ObjectKey

REF: JobRef = (kube.PODS, "ns/p")


@dataclass(frozen=True)
class Known:
    version: str
    key: str = "ns/p"
    uid: str = "u"


class PodWritesWorld:
    """The writes of a job's pods, and the errors that they report."""

    def __init__(self) -> None:
        self.listener = Listener()
        self.reported: list[ApiError] = []
        self.writes = PodWrites(self.listener, self._report)  # type: ignore[arg-type]

    def _report(self, ref: JobRef, key: ObjectKey, error: ApiError) -> None:
        self.reported.append(error)

    def starts(self, version: str) -> None:
        self.writes.send(REF, Known(version), "patch", {"spec": {"schedulingGates": None}}, starts=True)


def test_a_version_of_a_pod_is_written_once() -> None:
    world = PodWritesWorld()
    for version in ("1", "1", "2"):
        world.starts(version)
    assert len(world.listener.writes) == 2


def test_a_pod_starts_until_its_next_version_is_known() -> None:
    """Its gang must not give back its quota in between: the pod runs if the write has come through."""
    world = PodWritesWorld()
    world.writes.send(REF, Known("1"), "patch", {"metadata": {"finalizers": None}})
    assert not world.writes.is_starting(Known("1"))
    world.starts("2")
    assert world.writes.is_starting(Known("2"))
    assert not world.writes.is_starting(Known("3"))


@pytest.mark.parametrize(
    ("error", "starting", "reported"),
    [(Conflict(409, "", ""), True, 0), (NotFound(404, "", ""), True, 0), (Forbidden(403, "", ""), False, 1)],
)
def test_a_pod_whose_start_was_refused(error: ApiError, starting: bool, reported: int) -> None:
    """After a conflict the watch shows another version, or that the pod is gone: an earlier try may have come through."""
    world = PodWritesWorld()
    world.starts("1")
    refused = world.listener.writes[0].on_error
    assert refused is not None
    refused(error)
    assert world.writes.is_starting(Known("1")) is starting
    assert len(world.reported) == reported
    world.writes.forget("u")
    assert not world.writes.is_starting(Known("1"))
