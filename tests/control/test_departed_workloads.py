"""Quota of Workloads that are gone is held for as long as their pods run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.builders.objects import T, a_node, a_pod
from tests.context import a_context
from tests.objects import WorkloadObject

from gangline.control.feed.mirror import Mirror
from gangline.control.feed.pod_index import PodIndex
from gangline.control.feed.pod_owners import PodOwners
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.nodes.recovery.departed_workloads import AGAIN, DepartedWorkloads
from gangline.engine import model
from gangline.kube import resources as kube

Json = dict[str, Any]


def a_workload(uid: str = "u1", *, reserved: bool = True) -> WorkloadObject:
    usage = {"name": "main", "count": 2, "flavors": {"gpu": "h100"}, "resourceUsage": {"gpu": "8"}}
    rows = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("QuotaReserved", "Admitted")
    ]
    status = {"admission": {"clusterQueue": "cq", "podSetAssignments": [usage]}, "conditions": rows}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
    meta = {
        "namespace": "ns",
        "name": "w",
        "uid": uid,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [owner],
    }
    return WorkloadObject({"metadata": meta, "spec": {"queueName": "lq"}, "status": status if reserved else {}})


class Place:
    """Nodes n1 and n2, a job and pods of gangs."""

    def __init__(self, *pods: Json, suspended: bool | None = True) -> None:
        """`suspended` None: there is no job."""
        self.changes: list[model.Change] = []
        self.busy = False
        self.now = T
        self.mirror = Mirror(observe=lambda change: None)
        self.nodes = self.mirror.objects[kube.NODES]
        self.nodes.update({name: a_node(name) for name in ("n1", "n2")})
        self.pods = PodIndex(observe=lambda change: None, counts=lambda workload: {"main": 2})
        self.owners = PodOwners(self.mirror)
        self.departed = DepartedWorkloads(
            a_context(
                mirror=self.mirror,
                pods=self.pods,
                owners=self.owners,
                now=lambda: self.now,
                quarantine=Quarantine(lambda subject, obj, what: None),
            ),
            lambda resource, key: self.busy,
            self.changes.append,
        )
        if suspended is not None:
            self.job(suspended)
        for pod in pods:
            self.pods.upsert(pod)

    def job(self, suspended: bool, active: int = 0) -> None:
        meta = {"namespace": "ns", "name": "j", "uid": "uid-j", "resourceVersion": f"{suspended}{active}"}
        selector = {"matchLabels": {"controller-uid": "uid-j"}}
        body = {"suspend": suspended, "selector": selector, "template": {"spec": {"containers": []}}}
        self.mirror.upsert(kube.JOBS, {"metadata": meta, "spec": body, "status": {"active": active}})

    def look(self) -> None:
        """A second later."""
        self.now += AGAIN
        self.departed.settle()

    def held(self) -> dict[str, int]:
        """GPUs by the name under which the engine counts them."""
        found: dict[str, int] = {}
        for change in self.changes:
            if isinstance(change, model.Put) and isinstance(change.item, model.Workload):
                assert change.item.admission is not None and change.item.evicted
                found[change.item.key] = sum(each.usage["gpu"] for each in change.item.admission.pod_sets)
            elif isinstance(change, model.Gone):
                del found[change.key]
        return found


def test_what_a_deleted_workload_held_is_held_until_its_last_pod_has_ended() -> None:
    place = Place(a_pod("a"), a_pod("b", due=T))
    place.departed.departed(a_workload(), T)
    assert place.held() == {"ns/w#u1": 8}
    place.pods.remove("ns/b")
    place.look()
    assert place.held() == {"ns/w#u1": 8}, "the whole gang's, while one of its pods runs"
    place.pods.upsert(a_pod("a", phase="Failed"))
    place.look()
    assert place.held() == {}


def test_pods_of_its_successor_which_has_its_name_keep_nothing() -> None:
    place = Place(a_pod("a"))
    place.departed.departed(a_workload(), T)
    anew = a_pod("a")
    anew["metadata"]["uid"] = "another"
    place.pods.upsert(anew)
    place.look()
    assert place.held() == {}


def test_two_of_one_name_are_counted_apart() -> None:
    place = Place(a_pod("a"))
    place.departed.departed(a_workload("u1"), T)
    place.pods.upsert(a_pod("b"))
    place.departed.departed(a_workload("u2"), T)
    assert place.held() == {"ns/w#u1": 8, "ns/w#u2": 8}


def test_nothing_is_held_where_nothing_runs_or_nothing_was_granted() -> None:
    for pods, workload in (
        ((), a_workload()),
        ((a_pod("a", phase="Succeeded"),), a_workload()),
        ((a_pod("a"),), a_workload(reserved=False)),
    ):
        place = Place(*pods)
        place.departed.departed(workload, T)
        assert place.changes == []


def test_pods_on_nodes_that_do_not_answer_hold_nothing() -> None:
    place = Place(a_pod("a", "n1"), a_pod("b", "n2"))
    place.nodes["n1"] = a_node("n1", ready="Unknown")
    place.departed.departed(a_workload(), T)
    assert place.held() == {"ns/w#u1": 8}
    place.mirror.remove(kube.NODES, "n2")
    place.look()
    assert place.held() == {}


def test_a_job_that_has_not_been_stopped_may_still_start_pods() -> None:
    place = Place(suspended=False)
    place.departed.departed(a_workload(), T)
    assert place.held() == {"ns/w#u1": 8}, "though no pod of it is known yet"
    late = a_pod("late", **{"controller-uid": "uid-j"})
    late["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j", "uid": "uid-j", "controller": True}]
    assert place.owners.gang_of(late) is None, "its Workload is gone, so it can't prove its gang"
    place.look()
    place.job(suspended=True, active=1)
    place.look()
    assert place.held() == {"ns/w#u1": 8}
    place.job(suspended=True)
    place.look()
    assert place.held() == {"ns/w#u1": 8}, "the late one still runs"
    place.owners.forget("ns/late", gone=True)
    place.look()
    assert place.held() == {}


def test_a_start_that_is_under_way_counts() -> None:
    place = Place()
    place.busy = True
    place.departed.departed(a_workload(), T)
    assert place.held() == {"ns/w#u1": 8}
    place.busy = False
    place.look()
    assert place.held() == {}


def test_strangers_that_claim_the_workload_hold_nothing_of_it() -> None:
    place = Place(suspended=False)
    place.owners.gang_of(a_pod("liar"))
    place.departed.departed(a_workload(), T)
    place.job(suspended=True)
    place.look()
    assert place.held() == {}


def test_a_deleted_workload_without_a_job_is_kept_while_pods_claim_it() -> None:
    place = Place(suspended=None)
    assert not place.departed.runs("ns/w")
    place.owners.gang_of(a_pod("unbound", ""))
    assert not place.departed.runs("ns/w")
    place.owners.gang_of(a_pod("orphan"))
    assert place.departed.runs("ns/w"), "its owners are gone, and it can't prove anything"
    place.nodes["n1"] = a_node("n1", ready="Unknown")
    assert not place.departed.runs("ns/w")


def test_what_has_not_changed_is_not_looked_at() -> None:
    """Whoever deletes Workloads and leaves their pods, and forges more pods, costs work when pods change, not in every round."""
    place = Place(a_pod("a"))
    for number in range(20):
        place.departed.departed(a_workload(f"u{number}"), T)
    for number in range(30):
        place.owners.gang_of(a_pod(f"liar{number}"))
    place.look()
    asked: list[str] = []
    claimants = place.owners.claimants
    place.departed._owners = Asked(claimants, asked)  # type: ignore[assignment]
    for _ in range(10):
        place.look()
    assert asked == []
    place.mirror.upsert(kube.NODES, a_node("n2", since=T))
    place.look()
    assert asked == []
    place.pods.upsert(a_pod("a", phase="Failed"))
    place.look()
    assert (len(asked), place.held()) == (20, {})


class Asked:
    """Stands for the owners of pods, and records for which Workloads it is asked."""

    def __init__(self, claimants: Callable[[str], list[Json]], asked: list[str]) -> None:
        self._claimants = claimants
        self._asked = asked

    def claimants(self, workload: str) -> list[Json]:
        self._asked.append(workload)
        return self._claimants(workload)
