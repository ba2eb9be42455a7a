"""Reservations in the operator: windows for the engine, cordoned nodes, deadlines on pods, statuses."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.objects import T, a_node, a_pod, a_workload
from tests.builders.parts import PartWorld
from tests.objects import Stored

from gangline.api import names
from gangline.api.read.conditions import timestamp
from gangline.api.read.expansion import MOST, beside, expand
from gangline.api.schedules import instant
from gangline.control.nodes.windows import save_times
from gangline.control.nodes.windows.deadlines import Deadlines
from gangline.control.nodes.windows.reserving import AGAIN, MEASURES_EVERY, PERIOD, Reserving
from gangline.control.nodes.windows.save_times import SaveTimes
from gangline.control.parts.messages import AttemptNoted
from gangline.engine import Engine, model
from gangline.forecast.errors import StoreError
from gangline.forecast.history.attempts import EVICTED, JobAttempt
from gangline.kube import resources as kube
from gangline.kube.errors import Forbidden
from gangline.kube.reflector import Removed, Upsert
from gangline.kube.resources import ObjectKey
from gangline.objects import NodeObject, PodObject

MINUTE, HOUR = 60_000, 3_600_000
Json = dict[str, Any]


def reservation(
    name: str = "weekly", *, start: int = T + HOUR, end: int = T + 2 * HOUR, owners: Json | None = None, **spec: Any
) -> Stored:
    given = {"window": {"start": timestamp(start), "end": timestamp(end)}, "nodes": {"names": ["n1"]}, **spec}
    given |= {"for": owners} if owners is not None else {}
    meta = {"name": name, "uid": name, "resourceVersion": "1", "generation": 1, "creationTimestamp": timestamp(T)}
    return Stored({"apiVersion": "gangline.io/v1alpha1", "kind": "Reservation", "metadata": meta, "spec": given})


class ReservingWorld(PartWorld):
    """Nodes n1 and n2; what the part writes is carried out on nodes."""

    def __init__(self, *reservations: Stored) -> None:
        super().__init__((kube.NODES, a_node("n1")), (kube.NODES, a_node("n2")))
        self.facts: list[model.Change] = []
        self.versions = 0
        self.engine = Engine(model.Settings(pods_ready=None))
        self.save_times = SaveTimes(self.mirror, self.mirror.messages, lambda: self.now)
        self.part = self.operator()
        for each in reservations:
            self.apply(each)
        self.part.lead()

    def operator(self) -> Reserving:
        """The part of a process that has just started."""
        context = self.context(engine=self.engine)
        return Reserving(context, self.fact, self.save_times, Deadlines(context))

    def fact(self, change: model.Change) -> None:
        self.facts.append(change)
        self.engine.observe(change)

    def apply(self, *reservations: Stored) -> None:
        for each in reservations:
            self.mirror.upsert(kube.RESERVATIONS, each)
            self.part.observe(kube.RESERVATIONS, Upsert(each))

    def delete(self, name: str) -> None:
        self.mirror.remove(kube.RESERVATIONS, name)
        self.part.observe(kube.RESERVATIONS, Removed(name, name))

    def at(self, now: int) -> dict[str, list[Any]]:
        """A round of the loop at this time. Returns what was written, by plural; nodes follow."""
        self.now = now
        self.part.settle()
        self.part.act(now)
        written: dict[str, list[Any]] = {}
        writes, self.writer.writes = self.writer.writes, []
        for write in writes:
            body: Any = write.body() if callable(write.body) else write.body
            if body is None:
                continue
            written.setdefault(write.key.resource.plural, []).append(body)
            if write.key.resource == kube.NODES:
                self.change_node(write.key.name, body)
            elif write.key.resource == kube.RESERVATIONS:
                obj = self.mirror.objects[kube.RESERVATIONS][write.key.name]
                self.versions += 1
                meta = {**obj.metadata, "resourceVersion": str(100 + self.versions)}
                status = {**obj.status, **body["status"]}
                self.mirror.upsert(kube.RESERVATIONS, Stored({**obj, "metadata": meta, "status": status}))
        return written

    def change_node(self, name: str, body: Json) -> None:
        self.versions += 1
        node = self.mirror.nodes[name]
        annotations = {**node.annotations, **(body["metadata"].get("annotations") or {})}
        meta = {**node.metadata, "annotations": {k: v for k, v in annotations.items() if v is not None}}
        meta["resourceVersion"] = str(self.versions)
        self.mirror.upsert(kube.NODES, NodeObject({**node, "metadata": meta, "spec": {**node.spec, **body["spec"]}}))

    def cordoned(self) -> list[str]:
        return sorted(name for name, node in self.mirror.nodes.items() if node.spec.get("unschedulable"))

    def conditions(self, name: str = "weekly") -> dict[str, tuple[str, str]]:
        rows = self.mirror.objects[kube.RESERVATIONS][name].conditions
        return {row["type"]: (row["status"], row["reason"]) for row in rows}


# --- windows ----------------------------------------------------------------------------------------------------------


def test_the_engine_gets_a_window_and_loses_it_with_the_reservation() -> None:
    world = ReservingWorld(reservation(stopBefore="2m", notice="10m"))
    world.at(T)
    (put,) = world.facts
    assert isinstance(put, model.Put) and isinstance(put.item, model.ReservedWindow)
    assert put.item == model.ReservedWindow(
        f"weekly/{timestamp(T + HOUR)}",
        "weekly",
        T + HOUR - 2 * MINUTE,
        T + 2 * HOUR,
        frozenset({"n1"}),
        notice=10 * MINUTE,
        lead=2 * MINUTE,
    )
    world.at(T + 1)
    assert len(world.facts) == 1
    world.delete("weekly")
    world.at(T + 2)
    assert world.facts[1:] == [model.Gone(model.ReservedWindow, put.item.name)]


def test_weekly_windows_move_on_when_one_is_over() -> None:
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    daily = {"schedule": {"days": days, "time": "00:00", "duration": "1h"}}
    world = ReservingWorld(reservation(window=daily))
    world.at(T)
    items = [change.item for change in world.facts if isinstance(change, model.Put)]
    first = [item for item in items if isinstance(item, model.ReservedWindow)]
    assert len(first) == 4
    world.facts.clear()
    world.at(min(window.end for window in first))
    assert sorted(type(change).__name__ for change in world.facts) == ["Gone", "Put"]


def test_only_the_oldest_are_in_force_and_a_broken_one_costs_itself_alone() -> None:
    many = [reservation(f"r{number:03}") for number in range(MOST + 2)]
    broken = Stored({**many[3], "spec": {**many[3].spec, "window": {}}})
    many[3] = broken
    found = expand(many, {"n1": a_node("n1")}, {}, (), (), T)
    assert [each.name for each in found if not each.windows()] == ["r003", f"r{MOST:03}", f"r{MOST + 1:03}"]
    assert "spec.window" in found[3].troubles[0]


def test_some_nodes_of_a_flavor_stay_the_same() -> None:
    flavor = Stored({"metadata": {"name": "a"}, "spec": {"nodeLabels": {"gpu": "a"}}})
    nodes: dict[str, Stored] = {}
    for name in ("n1", "n2", "n3"):
        made = a_node(name)
        nodes[name] = NodeObject({**made, "metadata": {**made.metadata, "labels": {"gpu": "a"}}})
    wanted = reservation(nodes={"anyOf": {"flavor": "a", "count": 2}})
    (found,) = expand([wanted], nodes, {"a": flavor}, (), (), T)
    assert found.nodes == ("n1", "n2")
    held = Stored({**wanted, "status": {"nodes": ["n2", "n3"]}})
    (found,) = expand([held], nodes, {"a": flavor}, (), (), T)
    assert found.nodes == ("n2", "n3")
    (found,) = expand([held], {"n1": nodes["n1"]}, {"a": flavor}, (), (), T)
    assert found.troubles == ("spec.nodes.anyOf asks for 2 nodes of flavor a, which has 1 node",)


def test_two_that_want_the_same_node_for_others_say_so() -> None:
    both = [reservation(), reservation("mine", start=T + 90 * MINUTE, owners={"clusterQueues": ["cq"]})]
    found = expand(both, {"n1": a_node("n1")}, {}, ("cq",), (), T)
    told = {each.name: each.troubles[0] for each in found}
    assert "Reservation mine has n1, too" in told["weekly"]
    assert "Reservation weekly has n1, too" in told["mine"]
    apart = [
        reservation(),
        reservation("mine", start=T + 2 * HOUR, end=T + 3 * HOUR, owners={"clusterQueues": ["cq"]}),
    ]
    assert [each.troubles for each in expand(apart, {"n1": a_node("n1")}, {}, ("cq",), (), T)] == [(), ()]


def rival(name: str, start: int, length: int = HOUR, **spec: Any) -> Stored:
    return reservation(name, start=start, end=start + length, owners={"clusterQueues": [name]}, **spec)


WEEK = 7 * 24 * HOUR
DAILY = {
    "schedule": {
        "days": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
        "time": "00:00",
        "duration": "24h",
    }
}


def test_an_overlap_is_said_however_far_ahead_it_is() -> None:
    far = T + 20 * WEEK
    weekly = {"schedule": {"days": ["Sunday"], "time": "00:00", "duration": "24h"}}
    found = expand(
        [reservation(window=weekly), rival("launch", far, WEEK)], {"n1": a_node("n1")}, {}, ("launch",), (), T
    )
    assert [each.name for each in found] == ["launch", "weekly"]
    for each, other in zip(found, ("weekly", "launch"), strict=True):
        (told,) = each.troubles
        assert told.startswith(f"Reservation {other} has n1, too, from ")
        assert far <= instant(told.split()[6]) <= far + WEEK
    assert found[0].advice == (), "no week is without a Sunday"
    assert "The same nodes are in no other reservation from " in found[1].advice[0]


def test_where_no_free_time_is_known_none_is_promised() -> None:
    others = [rival("always", T, window=DAILY), rival("mine", T + HOUR)]
    found = expand(others, {"n1": a_node("n1")}, {}, ("always", "mine"), (), T)
    assert [len(each.troubles) for each in found] == [1, 1]
    assert found[1].advice == (), "the other one goes on for ever"


def test_a_reservation_beside_others_is_as_its_status_says_once_it_is_stored() -> None:
    nodes = {name: NodeObject({**a_node(name)}) for name in ("n1", "n2")}
    others = [rival("first", T + HOUR), rival("second", T + 90 * MINUTE, nodes={"names": ["n2"]})]
    new = rival("third", T + 80 * MINUTE, nodes={"names": ["n1", "n2", "n3"]})
    queues = ("first", "second", "third")
    before = beside("third", new["spec"], others, nodes, {}, queues, (), T)
    after = expand(
        [*others, Stored({**new, "metadata": {**new.metadata, "creationTimestamp": timestamp(T + 1)}})],
        nodes,
        {},
        queues,
        (),
        T,
    )
    assert (before.troubles, before.advice) == (after[2].troubles, after[2].advice)
    assert [told.split()[1] for told in before.troubles] == ["is", "first", "second"]
    changed = beside(
        "first", {**others[0]["spec"], "nodes": {"names": ["n2"]}}, [*others, new], nodes, {}, queues, (), T
    )
    assert changed.nodes == ("n2",) and len(changed.troubles) == 2, "it takes the place of the one of its name"


def test_more_nodes_than_there_are_could_be_fewer() -> None:
    flavor = Stored({"metadata": {"name": "a"}, "spec": {"nodeLabels": {"gpu": "a"}}})
    made = a_node("n1")
    nodes = {"n1": NodeObject({**made, "metadata": {**made.metadata, "labels": {"gpu": "a"}}})}
    wanted = reservation(nodes={"anyOf": {"flavor": "a", "count": 6}})
    (found,) = expand([wanted], nodes, {"a": flavor}, (), (), T)
    assert found.troubles == ("spec.nodes.anyOf asks for 6 nodes of flavor a, which has 1 node",)
    assert found.advice == ("1 node of flavor a can be reserved",)
    (found,) = expand([wanted], nodes, {}, (), (), T)
    assert (found.troubles, found.advice) == (("There is no ResourceFlavor a",), ())
    (found,) = expand([wanted], {}, {"a": flavor}, (), (), T)
    assert found.troubles and found.advice == ()


def test_what_is_not_there_is_said() -> None:
    wanted = reservation(nodes={"names": ["n1", "n9"]}, owners={"clusterQueues": ["none"]})
    (found,) = expand([wanted], {"n1": a_node("n1")}, {}, ("cq",), (), T)
    assert found.troubles == ("There is no node n9", "There is no ClusterQueue none")


def test_a_node_that_comes_or_gets_other_labels_is_selected_and_a_heartbeat_changes_nothing() -> None:
    world = ReservingWorld(reservation(nodes={"matchLabels": {"rack": "r1"}}))
    world.at(T)
    world.at(T + PERIOD)
    labelled = a_node("n3", since=T)
    world.mirror.upsert(
        kube.NODES, NodeObject({**labelled, "metadata": {**labelled.metadata, "labels": {"rack": "r1"}}})
    )
    world.at(T + 2 * PERIOD)
    assert world.mirror.objects[kube.RESERVATIONS]["weekly"].status["nodes"] == ["n3"]
    world.change_node("n3", {"metadata": {}, "spec": {}})
    assert world.at(T + 3 * PERIOD) == {}


# --- nodes ------------------------------------------------------------------------------------------------------------


def test_nodes_are_cordoned_in_a_maintenance_and_back_after_it() -> None:
    world = ReservingWorld(reservation())
    world.at(T)
    assert world.cordoned() == []
    assert world.part.due == T + HOUR - MINUTE - 30 * MINUTE  # the notice
    world.at(T + HOUR - MINUTE)
    assert world.cordoned() == ["n1"]
    assert world.mirror.nodes["n1"].annotations[names.CORDONED_FOR] == "weekly"
    assert world.conditions()["Active"] == ("True", "Open")
    world.at(T + HOUR)
    world.at(T + 2 * HOUR)
    assert world.cordoned() == []
    assert names.CORDONED_FOR not in world.mirror.nodes["n1"].annotations
    assert world.conditions()["Scheduled"] == ("False", "Over")


def test_a_node_that_another_part_is_writing_is_uncordoned_all_the_same() -> None:
    """Otherwise nothing would look at it again: the event of the other write may have come before."""
    world = ReservingWorld(reservation())
    world.at(T + HOUR)
    world.writer.busy.add(ObjectKey(kube.NODES, "", "n1"))
    world.at(T + 2 * HOUR)
    assert world.cordoned() == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_reservation_that_is_deleted_in_its_window_gives_its_nodes_back(restarts: bool) -> None:
    world = ReservingWorld(reservation())
    world.at(T + HOUR)
    assert world.cordoned() == ["n1"]
    if restarts:  # the operator is killed, and it is deleted meanwhile
        world.mirror.remove(kube.RESERVATIONS, "weekly")
        world.part = world.operator()
        world.part.lead()
    else:
        world.delete("weekly")
    world.at(T + HOUR + 1)
    assert world.cordoned() == []


def test_a_node_that_others_cordoned_or_uncordoned_stays_as_they_left_it() -> None:
    world = ReservingWorld(reservation(nodes={"names": ["n1", "n2"]}))
    world.change_node("n1", {"metadata": {}, "spec": {"unschedulable": True}})
    world.at(T + HOUR)
    assert names.CORDONED_FOR not in world.mirror.nodes["n1"].annotations
    world.change_node("n2", {"metadata": {}, "spec": {"unschedulable": None}})
    world.at(T + HOUR + 1)
    assert world.cordoned() == ["n1"]
    world.at(T + 2 * HOUR)
    assert world.cordoned() == ["n1"]


def test_a_window_for_somebody_cordons_nothing() -> None:
    world = ReservingWorld(reservation(owners={"clusterQueues": ["cq"]}))
    world.at(T + HOUR)
    assert world.cordoned() == []


def test_a_clock_that_steps_back_closes_the_window_again() -> None:
    world = ReservingWorld(reservation())
    world.at(T + HOUR)
    world.at(T)
    assert world.cordoned() == []


def test_a_clock_that_steps_back_opens_a_window_again_that_was_over() -> None:
    world = ReservingWorld(reservation())
    world.at(T + HOUR)
    world.at(T + 2 * HOUR + PERIOD)
    assert world.cordoned() == [] and isinstance(world.facts[-1], model.Gone)
    world.at(T + HOUR + 30 * MINUTE)
    assert world.cordoned() == ["n1"] and isinstance(world.facts[-1], model.Put)
    assert world.conditions()["Active"] == ("True", "Open")
    world.at(T + 2 * HOUR)
    assert world.cordoned() == []


def test_a_clock_that_steps_back_by_hours_does_not_delay_what_comes_after_it() -> None:
    world = ReservingWorld(reservation(nodes={"matchLabels": {"rack": "r1"}}, notice="10m"))
    world.put(kube.WORKLOADS, a_workload())
    world.put(kube.PODS, a_pod("p", "n3"))
    world.change_node("n1", {"metadata": {}, "spec": {}})
    world.at(T + HOUR)
    world.at(T - HOUR)
    made = a_node("n3", since=T)
    world.mirror.upsert(kube.NODES, NodeObject({**made, "metadata": {**made.metadata, "labels": {"rack": "r1"}}}))
    world.at(T - HOUR + PERIOD)
    assert world.mirror.objects[kube.RESERVATIONS]["weekly"].status["nodes"] == ["n3"]
    assert world.at(T + 55 * MINUTE)["pods"], "the deadline is told as ever"


def test_a_clock_that_jumps_over_a_window_leaves_no_node_cordoned_and_no_deadline() -> None:
    world = ReservingWorld(reservation(notice="10m"))
    world.put(kube.WORKLOADS, a_workload())
    world.put(kube.PODS, a_pod("p", "n1"))
    assert world.at(T + 55 * MINUTE)["pods"]
    written = world.at(T + 9 * HOUR)
    assert world.cordoned() == [] and written["pods"] == [{"metadata": {"annotations": {names.SAVE_BY: None}}}]
    assert world.conditions()["Scheduled"] == ("False", "Over")


def test_without_the_right_to_patch_nodes_the_status_says_so_and_it_is_tried_again_later() -> None:
    world = ReservingWorld(reservation())
    world.now = T + HOUR
    world.part.settle()
    world.part.act(world.now)
    (write,) = [each for each in world.writer.writes if each.key.resource == kube.NODES]
    assert write.on_error is not None
    write.on_error(Forbidden(403, "Forbidden", "nodes is forbidden"))
    world.writer.writes.clear()
    world.at(T + HOUR + PERIOD)
    assert world.conditions()["Conflict"] == ("True", "NotHonoured")
    assert world.cordoned() == []
    world.at(T + HOUR + AGAIN)
    assert world.cordoned() == ["n1"]


# --- pods -------------------------------------------------------------------------------------------------------------


def test_pods_learn_by_when_to_save_and_those_that_stay_too_long_are_shown() -> None:
    world = ReservingWorld(reservation(notice="10m"))
    world.put(kube.WORKLOADS, a_workload())
    world.put(kube.PODS, a_pod("p", "n1"), a_pod("q", "n2"))
    assert "pods" not in world.at(T)
    deadline = T + HOUR - MINUTE
    told = world.at(deadline - 10 * MINUTE)["pods"]
    assert told == [{"metadata": {"annotations": {names.SAVE_BY: timestamp(deadline)}}}]
    assert "pods" not in world.at(deadline - 9 * MINUTE)
    world.at(deadline)
    assert world.conditions()["Active"] == ("True", "Draining")
    assert world.mirror.objects[kube.RESERVATIONS]["weekly"].status["draining"] == ["ns/w"]


def test_a_deadline_is_taken_off_again_when_no_window_comes() -> None:
    world = ReservingWorld(reservation(notice="10m"))
    world.put(kube.WORKLOADS, a_workload())
    world.put(kube.PODS, a_pod("p", "n1"))
    world.at(T + 50 * MINUTE)
    world.delete("weekly")
    assert world.at(T + 51 * MINUTE)["pods"] == [{"metadata": {"annotations": {names.SAVE_BY: None}}}]


@pytest.mark.parametrize("deleted", [False, True])
def test_a_new_operator_takes_off_the_deadlines_that_do_not_hold_any_more(deleted: bool) -> None:
    """The operator was killed after it had written the deadline, and meanwhile the Reservation was deleted, or not."""
    world = ReservingWorld(*([] if deleted else [reservation(notice="10m")]))
    world.put(kube.WORKLOADS, a_workload())
    deadline = timestamp(T + HOUR - MINUTE)
    for name, node in (("p", "n1"), ("q", "n2")):
        raw = a_pod(name, node)
        world.put(
            kube.PODS,
            PodObject(
                {**raw, "metadata": {**raw.metadata, "annotations": {**raw.annotations, names.SAVE_BY: deadline}}}
            ),
        )
    none = {"metadata": {"annotations": {names.SAVE_BY: None}}}
    assert world.at(T + 55 * MINUTE)["pods"] == ([none, none] if deleted else [none]), "q is on another node"
    assert "pods" not in world.at(T + 56 * MINUTE)


def test_those_whom_the_window_is_for_are_told_nothing() -> None:
    world = ReservingWorld(reservation(notice="10m", owners={"clusterQueues": ["cq"]}))
    world.put(kube.CLUSTER_QUEUES, Stored({"metadata": {"name": "cq"}, "spec": {}}))
    world.put(kube.WORKLOADS, a_workload())
    world.put(kube.PODS, a_pod("p", "n1"))
    assert "pods" not in world.at(T + 55 * MINUTE)


# --- users ------------------------------------------------------------------------------------------------------------


def by_user(workload: Stored, user: str) -> Stored:
    meta = {**workload.metadata, "labels": {**workload.labels, names.USER: user}, "resourceVersion": f"{ord(user[0])}"}
    return type(workload)({**workload, "metadata": meta})


def test_the_engine_learns_whose_workloads_are_of_users_that_windows_name() -> None:
    world = ReservingWorld(reservation(owners={"users": ["mira"]}))
    world.put(kube.WORKLOADS, by_user(a_workload(), "mira"))
    world.at(T)
    submitted = model.Submitter("ns/w", "mira")
    assert model.Put(submitted) in world.facts
    world.facts.clear()
    world.put(kube.WORKLOADS, by_user(a_workload(), "noor"))
    world.at(T + 1)
    assert world.facts == [model.Gone(model.Submitter, "ns/w")]
    world.put(kube.WORKLOADS, by_user(a_workload(), "zoe"))
    world.apply(reservation("zoes", owners={"users": ["zoe"]}))
    world.at(T + 2)
    assert model.Put(model.Submitter("ns/w", "zoe")) in world.facts
    world.delete("zoes")
    world.delete("weekly")
    world.facts.clear()
    world.at(T + 3)
    assert model.Gone(model.Submitter, "ns/w") in world.facts


def test_nothing_is_told_of_users_that_no_window_names() -> None:
    world = ReservingWorld(reservation(owners={"clusterQueues": ["cq"]}))
    world.put(kube.WORKLOADS, by_user(a_workload(), "mira"))
    world.at(T)
    assert [type(each.item) for each in world.facts if isinstance(each, model.Put)] == [model.ReservedWindow]


def test_pods_of_a_user_whom_the_window_is_for_are_told_nothing() -> None:
    world = ReservingWorld(reservation(notice="10m", owners={"users": ["mira"]}))
    world.put(kube.WORKLOADS, by_user(a_workload(), "mira"))
    world.put(kube.PODS, a_pod("p", "n1"))
    assert "pods" not in world.at(T + 55 * MINUTE)


# --- soft windows -----------------------------------------------------------------------------------------------------


def test_nobody_is_told_to_leave_a_soft_window_but_those_that_are_recalled() -> None:
    world = ReservingWorld(reservation(notice="10m", firm="Soft", owners={"users": ["mira"]}))
    world.put(kube.WORKLOADS, a_workload())
    world.put(kube.PODS, a_pod("p", "n1"))
    assert "pods" not in world.at(T + 65 * MINUTE)
    assert world.conditions()["Active"] == ("True", "Open")
    until = T + 75 * MINUTE
    world.engine.observe(model.Put(model.Recall("ns/w", "weekly", until, "ns/v")))
    told = world.at(T + 65 * MINUTE + PERIOD)["pods"]
    assert told == [{"metadata": {"annotations": {names.SAVE_BY: timestamp(until)}}}]
    status = world.mirror.objects[kube.RESERVATIONS]["weekly"].status
    assert status["recalls"] == [{"workload": "ns/w", "by": "ns/v", "until": timestamp(until)}]


def test_a_new_operator_keeps_to_the_deadlines_of_a_status() -> None:
    rows = [
        {"workload": "ns/w", "by": "ns/v", "until": timestamp(T + HOUR)},
        {"workload": "ns/x", "by": "ns/v", "until": "soon"},
        {"workload": 1, "by": "ns/v", "until": timestamp(T)},
        "no row",
    ]
    told = reservation(firm="Soft", owners={"users": ["mira"]})
    world = ReservingWorld(Stored({**told, "status": {"recalls": rows}}))
    world.at(T)
    assert [
        each.item for each in world.facts if isinstance(each, model.Put) and isinstance(each.item, model.Recall)
    ] == [model.Recall("ns/w", "weekly", T + HOUR, "ns/v")]


# --- amounts ----------------------------------------------------------------------------------------------------------


def test_as_many_nodes_are_reserved_as_offer_an_amount_together() -> None:
    flavor = Stored({"metadata": {"name": "a"}, "spec": {"nodeLabels": {"gpu": "a"}}})
    nodes: dict[str, Stored] = {}
    for name, gpus in (("n1", 8), ("n2", 0), ("n3", 4), ("n4", 8)):
        made = a_node(name)
        meta = {**made.metadata, "labels": {"gpu": "a"}}
        nodes[name] = NodeObject({**made, "metadata": meta, "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}}})

    def chosen(gpus: int, *held: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        wanted = reservation(nodes={"anyOf": {"flavor": "a", "resources": {"nvidia.com/gpu": gpus}}})
        (found,) = expand([Stored({**wanted, "status": {"nodes": [*held]}})], nodes, {"a": flavor}, (), (), T)
        return found.nodes, found.troubles

    assert chosen(8) == (("n1",), ())
    assert chosen(12) == (("n1", "n3"), ())
    assert chosen(13) == (("n1", "n3", "n4"), ())
    assert chosen(12, "n4") == (("n1", "n4"), ())
    assert chosen(24)[1] == ("spec.nodes.anyOf asks for 24 nvidia.com/gpu of flavor a, which has 20 nvidia.com/gpu",)


@given(
    st.lists(st.integers(0, 8), max_size=12),
    st.integers(1, 40),
    st.sets(st.integers(0, 11), max_size=4),
)
def test_others_have_at_most_what_is_left_of_an_amount(offers: list[int], amount: int, held: set[int]) -> None:
    """What nodes outside of the reservation offer is at most the flavor's whole, less the amount; and no node is reserved in
    vain.
    """
    flavor = Stored({"metadata": {"name": "a"}, "spec": {"nodeLabels": {"gpu": "a"}}})
    nodes: dict[str, Stored] = {}
    for number, gpus in enumerate(offers):
        made = a_node(f"n{number:02}")
        meta = {**made.metadata, "labels": {"gpu": "a"}}
        allocatable = {"allocatable": {"nvidia.com/gpu": str(gpus)}}
        nodes[f"n{number:02}"] = NodeObject({**made, "metadata": meta, "status": allocatable})
    wanted = reservation(nodes={"anyOf": {"flavor": "a", "resources": {"nvidia.com/gpu": amount}}})
    held_nodes = {"status": {"nodes": [f"n{number:02}" for number in sorted(held)]}}
    (found,) = expand([Stored({**wanted, **held_nodes})], nodes, {"a": flavor}, (), (), T)
    taken = [offers[int(name[1:])] for name in found.nodes]
    assert bool(found.troubles) == (sum(offers) < amount)
    assert sum(offers) - sum(taken) <= max(0, sum(offers) - amount)
    assert all(taken)
    assert not taken or any(sum(taken) - each < amount for each in taken)


# --- measured stops ---------------------------------------------------------------------------------------------------


def stopped(seconds: float, **fields: Any) -> JobAttempt:
    at = T / 1000
    given = {"namespace": "ns", "workload": "w", "job_name": "w", "ready": at, "end": EVICTED, "stopped": at + 60}
    return JobAttempt(
        **{"uid": "u", "reserved": at, "submitted": at, "queued": at, **given, **fields, "ended": at + 60 + seconds}
    )


def test_pods_that_took_long_to_end_are_told_to_save_as_much_earlier() -> None:
    world = ReservingWorld(reservation(notice="30m", stopBefore="1m"))
    world.put(kube.WORKLOADS, a_workload())
    world.put(kube.PODS, a_pod("p", "n1"))
    for seconds in (100.0, 600.0):
        world.mirror.messages.publish(AttemptNoted(stopped(seconds)))
    world.mirror.messages.publish(AttemptNoted(stopped(9000.0, end="Succeeded")))  # nobody stopped it
    world.mirror.messages.publish(AttemptNoted(stopped(9000.0, reason="NodeFailures")))
    world.mirror.messages.publish(AttemptNoted(stopped(9000.0, ready=None)))
    world.mirror.messages.publish(AttemptNoted(stopped(9000.0, user="noor")))
    world.at(T)
    assert model.Put(model.SaveTime("ns/w", 600_000)) in world.facts
    world.engine.observe(model.Put(model.Workload("u", "ns", "w", "q", ())))
    told = world.at(T + 40 * MINUTE)["pods"]
    assert told == [{"metadata": {"annotations": {names.SAVE_BY: timestamp(T + 50 * MINUTE)}}}]


def test_newer_measures_come_from_time_to_time_and_none_without_a_hard_window() -> None:
    world = ReservingWorld(reservation(firm="Soft", owners={"users": ["mira"]}))
    world.put(kube.WORKLOADS, a_workload())
    world.mirror.messages.publish(AttemptNoted(stopped(100.0)))
    world.at(T)
    assert not any(isinstance(each, model.Put) and isinstance(each.item, model.SaveTime) for each in world.facts)
    world.apply(reservation("hard"))
    world.at(T + 1)
    assert model.Put(model.SaveTime("ns/w", 100_000)) in world.facts
    world.facts.clear()
    world.mirror.messages.publish(AttemptNoted(stopped(300.0)))
    world.at(T + 2)
    assert world.facts == []
    world.at(T + 2 + MEASURES_EVERY)
    assert world.facts == [model.Put(model.SaveTime("ns/w", 300_000))]


class Record:
    """A record of attempts that answers at the second time."""

    def __init__(self) -> None:
        self.asked = 0

    async def ended_by(self, ends: Collection[str], since: float) -> list[JobAttempt]:
        self.asked += 1
        if self.asked == 1:
            raise StoreError("not yet")
        return [stopped(100.0)]


async def test_what_an_earlier_leader_measured_is_read_once_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save_times, "RETRY", 0.0)
    world, record = ReservingWorld(), Record()
    world.put(kube.WORKLOADS, a_workload())
    task = asyncio.create_task(world.save_times.run(record))
    await asyncio.sleep(0.01)
    assert record.asked == 0
    world.apply(reservation())
    world.at(T)
    await asyncio.sleep(0.05)
    task.cancel()
    assert record.asked == 2
    world.at(T + MEASURES_EVERY)
    assert model.Put(model.SaveTime("ns/w", 100_000)) in world.facts
