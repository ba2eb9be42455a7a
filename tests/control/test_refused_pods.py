"""Which events tell of refused pods, and when a gang counts as refused. Without a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from tests.context import a_context
from tests.control.test_stall_watch import FakeWrites
from tests.jobs.gangs import KIND, gpu_job
from tests.objects import PodObject, Stored, condition_of

from gangline.api import names
from gangline.api.read import conditions
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.pod_index import PodIndex
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.nodes.stall import refused_pods
from gangline.control.nodes.stall.refused_pods import PATIENCE, RefusedPodsOfRuns
from gangline.jobs import workload as workloads
from gangline.kube import resources as kube
from gangline.kube.client import ObjectList

Json = dict[str, Any]
START = 1_700_000_000_000
KEY = "team/gpujob-llama"

QUOTA = 'Error creating: pods "x-0" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1'
SECURITY = 'Error creating: pods "x-0" is forbidden: violates PodSecurity "restricted:latest": privileged'


def event(note: str, at: int, *, uid: str = "uid-child", reason: str = "FailedCreate", **more: Any) -> Stored:
    times = {"deprecatedLastTimestamp": conditions.timestamp(at)}
    meta = {"name": "e", "creationTimestamp": conditions.timestamp(at)}
    regarding = {"kind": "Job", "uid": uid}
    return Stored({"metadata": meta, "reason": reason, "note": note, "regarding": regarding, **times, **more})


@pytest.mark.parametrize(
    ("note", "reason"),
    [
        (QUOTA, "ExceededQuota"),
        (SECURITY, "PodSecurity"),
        ('Error creating: admission webhook "v.example.com" denied the request: no', "Denied"),
        ('Error creating: pods "x" is forbidden: error looking up service account a/b: not found', "Forbidden"),
        ('Error creating: Pod "x" is invalid: spec.containers: Required value', "Invalid"),
        ('Error creating: pods "x" is forbidden: status unknown for quota: few, resources: pods', None),
        ('Error creating: Internal error occurred: failed calling webhook "w": connection refused', None),
        ("Error creating: Timeout: request did not complete within requested timeout", None),
        ("Error creating: etcdserver: request timed out", None),
        ("Error creating: Post https://10.0.0.1/api: dial tcp: connection refused", None),
        ("", None),
    ],
)
def test_only_what_a_retry_does_not_change_is_a_refusal(note: str, reason: str | None) -> None:
    found = refused_pods.read(event(note, START))
    assert (found.reason if found else None) == reason


def test_the_words_are_those_of_the_api_server_in_one_line() -> None:
    found = refused_pods.read(event("Error creating: pods is forbidden:\n a\x1b[0m " + "x" * 5000, START))
    assert found is not None
    assert found.message.startswith("pods is forbidden: a [0m xx")
    assert len(found.message) == refused_pods.LONGEST
    assert refused_pods.read(event(QUOTA, START, reason="BackoffLimitExceeded")) is None


def test_the_last_time_of_a_repeated_event_counts() -> None:
    series = {"lastObservedTime": conditions.timestamp(START + 60_000)}
    found = refused_pods.read(event(QUOTA, START, series=series))
    assert found is not None
    assert found.at == START + 60_000


class FakeClient:
    def __init__(self) -> None:
        self.events: list[Json] = []
        self.asked: list[str] = []

    async def pages(self, resource: kube.Resource, namespace: str, **_: Any) -> AsyncIterator[ObjectList]:
        self.asked.append(namespace)
        yield ObjectList(self.events, "1")


class Room:
    """A GPUJob of two pods, admitted at START, with one child Job."""

    def __init__(self) -> None:
        self.now = START
        self.mirror = Mirror(lambda _: None)
        self.pods = PodIndex(lambda _: None, self.mirror.pod_counts)
        self.client = FakeClient()
        self.said: list[str] = []
        self.writes = FakeWrites(self.mirror, lambda: self.now)
        job = gpu_job(suspend=False)
        job["metadata"]["resourceVersion"] = "1"
        child = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "llama-worker",
                "namespace": "team",
                "uid": "uid-child",
                "ownerReferences": [workloads.owner_reference(KIND, job)],
            },
            "spec": {},
        }
        body = workloads.build(KIND, job, KIND.pod_sets(job), queue="lq", priority=0)
        body["metadata"] |= {"name": "gpujob-llama", "uid": "uid-workload", "resourceVersion": "w0"}
        pod_sets = [{"name": row["name"], "count": row["count"], "flavors": {}} for row in body["spec"]["podSets"]]
        body["status"] = {"admission": {"clusterQueue": "cq", "podSetAssignments": pod_sets}, "conditions": []}
        for kind in (names.QUOTA_RESERVED, names.ADMITTED):
            conditions.put(body["status"]["conditions"], kind, True, kind, "", now=START)
        for resource, obj in ((kube.GPU_JOBS, job), (kube.JOBS, child), (kube.WORKLOADS, body)):
            self.mirror.upsert(resource, obj)
        self.refused = RefusedPodsOfRuns(
            a_context(
                client=cast(Any, self.client),
                mirror=self.mirror,
                writes=cast(Any, self.writes),
                pods=self.pods,
                recorder=cast(Any, self),
                now=lambda: self.now,
                quarantine=Quarantine(lambda *_: None),
            )
        )

    def record(self, obj: Json, kind: str, reason: str, message: str) -> None:
        """As an EventRecorder."""
        self.said.append(f"{obj['kind']} {reason}")

    def pod(self, name: str, created: int) -> None:
        meta = {
            "name": name,
            "namespace": "team",
            "uid": name,
            "creationTimestamp": conditions.timestamp(created),
            "annotations": {names.WORKLOAD_ANNOTATION: "gpujob-llama"},
        }
        self.pods.upsert(PodObject({"metadata": meta, "spec": {}, "status": {"phase": "Pending"}}))

    async def look(self) -> tuple[str, str]:
        """One look of its loop; status and reason of the condition."""
        suspects = await self.refused._look()
        for namespace in self.refused._in_turn({suspect.value.namespace for suspect in suspects}):
            self.refused._judge(suspects, await self.refused._refusals_in(namespace))
        raw = self.mirror.get(kube.WORKLOADS, KEY)
        row = condition_of(raw, names.PODS_REFUSED) if raw is not None else None
        return (row["status"], row["reason"]) if row else ("", "")


async def test_a_gang_is_refused_where_an_event_of_its_job_says_so() -> None:
    room = Room()
    room.client.events = [event(QUOTA, START + 2000), event("Error creating: timeout", START + 3000)]
    room.now = START + 5000
    assert await room.look() == ("", ""), "it has just been admitted"
    room.now = START + PATIENCE
    assert await room.look() == ("True", "ExceededQuota")
    assert room.said == ["Workload PodsRefused", "GPUJob PodsRefused"]
    (_, verb, body), *_ = room.writes.sent
    assert verb == "status"
    assert body["status"]["conditions"][-1]["reason"] == "ExceededQuota"
    assert await room.look() == ("True", "ExceededQuota")
    assert room.writes.changes == 1, "it is said once"


async def test_a_slow_api_server_refuses_nothing() -> None:
    """No refusal, no verdict, however long the pods take; nor by a refusal before the admission or before a newer pod."""
    room = Room()
    room.now = START + 3_600_000
    assert await room.look() == ("", "")
    room.client.events = [event(QUOTA, START - 5000)]
    assert await room.look() == ("", ""), "that was an earlier run"
    room.client.events = [event(QUOTA, START + 2000)]
    room.pod("a", START + 4000)
    assert await room.look() == ("", ""), "pods are accepted again"
    room.client.events = [event(QUOTA, START + 2000, uid="of-another-job")]
    assert await room.look() == ("", "")
    assert room.writes.changes == 0


async def test_it_is_over_when_pods_are_created_again() -> None:
    room = Room()
    room.pod("a", START + 1000)
    room.client.events = [event(SECURITY, START + 2000)]
    room.now = START + PATIENCE
    assert await room.look() == ("True", "PodSecurity")
    room.client.events = []
    assert await room.look() == ("True", "PodSecurity"), "an event that has expired takes nothing back"
    room.pod("b", START + 60_000)
    assert await room.look() == ("False", "Accepted")


async def test_events_are_read_only_where_pods_are_missing() -> None:
    room = Room()
    room.pod("a", START)
    room.pod("b", START)
    room.now = START + 60_000
    await room.look()
    assert room.client.asked == []


async def test_an_event_of_another_shape_costs_only_itself() -> None:
    room = Room()
    odd = event(QUOTA, START + 3000) | {"deprecatedLastTimestamp": "yesterday"}
    odder = event(QUOTA, START + 3000) | {"series": "none"}
    room.client.events = [odd, odder, event(QUOTA, START + 2000)]
    room.now = START + PATIENCE
    assert await room.look() == ("True", "ExceededQuota")


def test_each_namespace_gets_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.control.nodes.stall.refused_pods.NAMESPACES", 2)
    room = Room()
    turns = [list(room.refused._in_turn({"a", "b", "c"})) for _ in range(3)]
    assert turns == [["a", "b"], ["c", "a"], ["b", "c"]]
