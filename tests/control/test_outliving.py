"""Quota of Workloads that are gone is held for as long as their pods run."""

from __future__ import annotations

from typing import Any

from tests.control.gang_pods import T, a_node, a_pod

from gangline.control.footprints import Footprints
from gangline.control.outliving import Outliving
from gangline.engine import model

Json = dict[str, Any]


def a_workload(uid: str = "u1", *, reserved: bool = True) -> Json:
    usage = {"name": "main", "count": 2, "flavors": {"gpu": "h100"}, "resourceUsage": {"gpu": "8"}}
    rows = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("QuotaReserved", "Admitted")
    ]
    status = {"admission": {"clusterQueue": "cq", "podSetAssignments": [usage]}, "conditions": rows}
    return {
        "metadata": {"namespace": "ns", "name": "w", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"queueName": "lq"},
        "status": status if reserved else {},
    }


class Place:
    def __init__(self, *pods: Json) -> None:
        self.told: list[model.Change] = []
        self.nodes = {name: a_node(name) for name in ("n1", "n2")}
        self.footprints = Footprints(observe=lambda change: None, counts=lambda workload: {"main": 2})
        self.outliving = Outliving(self.footprints, self.nodes.get, self.told.append)
        for pod in pods:
            self.footprints.upsert(pod)

    def held(self) -> dict[str, int]:
        """GPUs by the name under which the engine counts them."""
        found: dict[str, int] = {}
        for change in self.told:
            if isinstance(change, model.Put) and isinstance(change.item, model.Workload):
                assert change.item.admission is not None and change.item.evicted
                found[change.item.key] = sum(each.usage["gpu"] for each in change.item.admission.pod_sets)
            elif isinstance(change, model.Gone):
                del found[change.key]
        return found


def test_what_a_deleted_workload_held_is_held_until_its_last_pod_has_ended() -> None:
    place = Place(a_pod("a"), a_pod("b", due=T))
    place.outliving.departed(a_workload(), T)
    assert place.held() == {"ns/w#u1": 8}
    place.footprints.remove("ns/b")
    place.outliving.look()
    assert place.held() == {"ns/w#u1": 8}, "the whole gang's, while one of its pods runs"
    place.footprints.upsert(a_pod("a", phase="Failed"))
    place.outliving.look()
    assert place.held() == {}


def test_pods_of_its_successor_which_has_its_name_keep_nothing() -> None:
    place = Place(a_pod("a"))
    place.outliving.departed(a_workload(), T)
    anew = a_pod("a")
    anew["metadata"]["uid"] = "another"
    place.footprints.upsert(anew)
    place.outliving.look()
    assert place.held() == {}


def test_two_of_one_name_are_counted_apart() -> None:
    place = Place(a_pod("a"))
    place.outliving.departed(a_workload("u1"), T)
    place.footprints.upsert(a_pod("b"))
    place.outliving.departed(a_workload("u2"), T)
    assert place.held() == {"ns/w#u1": 8, "ns/w#u2": 8}


def test_nothing_is_held_where_nothing_runs_or_nothing_was_granted() -> None:
    for pods, workload in (
        ((), a_workload()),
        ((a_pod("a", phase="Succeeded"),), a_workload()),
        ((a_pod("a"),), a_workload(reserved=False)),
    ):
        place = Place(*pods)
        place.outliving.departed(workload, T)
        assert place.told == []


def test_pods_on_nodes_that_do_not_answer_hold_nothing() -> None:
    place = Place(a_pod("a", "n1"), a_pod("b", "n2"))
    place.nodes["n1"] = a_node("n1", ready="Unknown")
    place.outliving.departed(a_workload(), T)
    assert place.held() == {"ns/w#u1": 8}
    del place.nodes["n2"]
    place.outliving.look()
    assert place.held() == {}
