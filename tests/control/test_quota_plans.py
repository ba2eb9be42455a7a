"""QuotaPlans in the operator: effective quotas for the engine, those ahead, statuses."""

from __future__ import annotations

from typing import Any

from tests.builders.clusters import GPU, queue
from tests.builders.objects import T, a_pod
from tests.builders.parts import PartWorld
from tests.objects import Stored

from gangline.api import names
from gangline.api.read.conditions import timestamp
from gangline.control.nodes.windows.deadlines import Deadlines
from gangline.control.queues.quota_plans import LATE, PERIOD, QuotaPlans
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Upsert

MINUTE, HOUR = 60_000, 3_600_000
Json = dict[str, Any]


def override(name: str, gpus: int | None, start: int, end: int, **quota: Any) -> Json:
    window = {"start": timestamp(start), "end": timestamp(end)}
    nominal = {} if gpus is None else {"nominalQuota": gpus}
    return {"name": name, "window": window, "quotas": [{"flavor": "h100", "resource": GPU, **nominal, **quota}]}


def plan(name: str, *overrides: Json, queue: str = "a", created: int = T, **spec: Any) -> Stored:
    meta = {"name": name, "uid": name, "resourceVersion": "1", "generation": 1, "creationTimestamp": timestamp(created)}
    given = {"clusterQueue": queue, "overrides": list(overrides), **spec}
    return Stored({"apiVersion": "gangline.io/v1alpha1", "kind": "QuotaPlan", "metadata": meta, "spec": given})


class PlanningWorld(PartWorld):
    """ClusterQueue a with 8 GPUs; what the part writes of statuses is carried out."""

    def __init__(self, *plans: Stored) -> None:
        self.facts: list[model.Change] = []
        self.observe = self.facts.append
        super().__init__()
        self.versions = 0
        self.told: dict[str, tuple[int, str]] = {}
        context = self.context(engine=self)
        self.part = QuotaPlans(context, self.facts.append, Deadlines(context))
        for resource, obj in queue("a", 8, cohort="pool"):
            self.put(resource, Stored(obj))
        self.apply(*plans)
        self.part.lead()

    def recalled(self) -> dict[str, tuple[int, str]]:
        """What the engine says."""
        return self.told

    def restart(self) -> None:
        """Another process, which finds the statuses that this one has written."""
        context = self.context(engine=self)
        self.part = QuotaPlans(context, self.facts.append, Deadlines(context))
        self.mirror.read_again(kube.CLUSTER_QUEUES, "a")
        self.part.lead()

    def apply(self, *plans: Stored) -> None:
        for each in plans:
            self.mirror.upsert(kube.QUOTA_PLANS, each)
            self.part.observe(kube.QUOTA_PLANS, Upsert(each))

    def delete(self, name: str) -> None:
        self.mirror.remove(kube.QUOTA_PLANS, name)
        self.part.observe(kube.QUOTA_PLANS, Removed(name, name))

    def at(self, now: int) -> dict[str, str | None]:
        """A round of the loop. Returns the deadlines that are written on pods."""
        self.now = now
        self.part.settle()
        self.part.act(now)
        writes, self.writer.writes = self.writer.writes, []
        deadlines: dict[str, str | None] = {}
        for write in writes:
            if write.key.resource == kube.PODS:
                body = write.body
                assert isinstance(body, dict)
                deadlines[write.key.name] = body["metadata"]["annotations"][names.SAVE_BY]
                continue
            obj = self.mirror.objects[kube.QUOTA_PLANS][write.key.name]
            self.versions += 1
            body: Any = write.body
            meta = {**obj.metadata, "resourceVersion": str(100 + self.versions)}
            status = {k: v for k, v in {**obj.status, **body["status"]}.items() if v is not None}
            self.mirror.upsert(kube.QUOTA_PLANS, Stored({**obj, "metadata": meta, "status": status}))
        return deadlines

    def gpus(self) -> int:
        """The nominal quota that the engine has."""
        last = [c.item for c in self.facts if isinstance(c, model.Put) and isinstance(c.item, model.ClusterQueue)][-1]
        return last.groups[0].flavors[0].resources[GPU].nominal

    def ahead(self) -> model.QuotaAhead | None:
        known: model.QuotaAhead | None = None
        for change in self.facts:
            if isinstance(change, model.Put) and isinstance(change.item, model.QuotaAhead):
                known = change.item
            elif isinstance(change, model.Gone) and change.kind is model.QuotaAhead:
                known = None
        return known

    def steps(self) -> list[tuple[int, int]]:
        """When each next change comes, after `T`, and the nominal quota from then on."""
        known = self.ahead()
        return [(s.at - T, s.groups[0].flavors[0].resources[GPU].nominal) for s in known.steps] if known else []

    def status(self, name: str = "p") -> Json:
        return self.mirror.objects[kube.QUOTA_PLANS][name].status

    def conditions(self, name: str = "p") -> dict[str, tuple[str, str]]:
        return {row["type"]: (row["status"], row["message"]) for row in self.status(name)["conditions"]}


def test_the_engine_gets_the_quotas_of_this_time_and_those_ahead() -> None:
    world = PlanningWorld(plan("p", override("day", 2, T + HOUR, T + 3 * HOUR)))
    world.at(T)
    assert (world.gpus(), world.steps(), world.part.due) == (8, [(HOUR, 2), (3 * HOUR, 8)], T + HOUR)
    world.at(T + HOUR - 1)
    assert world.gpus() == 8
    world.at(T + HOUR)
    assert (world.gpus(), world.steps()) == (2, [(3 * HOUR, 8)])
    world.at(T + 3 * HOUR)
    assert (world.gpus(), world.steps()) == (8, [])


def test_a_plan_that_is_deleted_changes_nothing_any_more() -> None:
    world = PlanningWorld(plan("p", override("day", 2, T - HOUR, T + HOUR)))
    world.at(T)
    assert (world.gpus(), world.steps()) == (2, [(HOUR, 8)])
    world.delete("p")
    world.at(T + 1)
    assert (world.gpus(), world.steps()) == (8, [])


def test_a_clusterqueue_that_is_written_meanwhile_has_its_new_quotas_under_the_plan() -> None:
    world = PlanningWorld(plan("p", override("day", None, T, T + HOUR, borrowingLimit=1)))
    world.at(T)
    obj = queue("a", 6, cohort="pool")[0][1]
    world.put(kube.CLUSTER_QUEUES, Stored({**obj, "metadata": {**obj["metadata"], "resourceVersion": "2"}}))
    world.at(T + 1)
    assert (world.gpus(), world.steps()) == (6, [(HOUR, 6)])


def test_the_oldest_plan_of_a_clusterqueue_is_in_force() -> None:
    day = override("day", 2, T, T + HOUR)
    world = PlanningWorld(plan("p", day), plan("old", override("day", 4, T, T + HOUR), created=T - 60_000))
    world.at(T)
    assert world.gpus() == 4
    assert world.conditions("old")["Active"][0] == "True"
    older = "QuotaPlan old of ClusterQueue a is older: as long as it exists, this one has no effect"
    assert world.conditions("p")["Active"] == ("False", older)
    assert world.conditions("p")["Conflict"] == ("True", f"{older}. QuotaPlan old could have these overrides, too")
    world.delete("old")
    world.at(T + 1)
    assert world.gpus() == 2


def test_the_status_shows_effective_quotas_and_the_next_change() -> None:
    world = PlanningWorld(plan("p", override("day", 2, T + HOUR, T + 3 * HOUR, lendingLimit=4)))
    world.at(T)
    status = world.status()
    assert status["effectiveQuotas"] == [{"flavor": "h100", "resource": GPU, "nominalQuota": "8"}]
    assert status["activeOverrides"] == []
    quotas = [{"flavor": "h100", "resource": GPU, "nominalQuota": "2", "lendingLimit": "2"}]
    assert status["nextChange"] == {"time": timestamp(T + HOUR), "overrides": ["day"], "quotas": quotas}
    world.at(T + HOUR)
    assert (world.status()["activeOverrides"], world.status()["effectiveQuotas"]) == (["day"], quotas)


def test_what_is_not_honoured_is_said() -> None:
    other = {**override("day", 2, T, T + HOUR), "quotas": [{"flavor": "a100", "resource": GPU, "nominalQuota": 1}]}
    world = PlanningWorld(plan("p", other), plan("q", queue="b"), plan("r", {"name": "day"}))
    world.at(T)
    assert world.conditions()["Conflict"] == ("True", f"ClusterQueue a has no quota of {GPU} in flavor a100")
    assert world.conditions("q")["Active"] == ("False", "There is no ClusterQueue b")
    assert world.conditions("r")["Active"] == ("False", "spec.overrides[0].quotas: give at least one quota")


def test_without_a_plan_nothing_is_looked_at() -> None:
    world = PlanningWorld()
    world.facts.clear()
    world.at(T)
    assert (world.facts, world.part.due) == ([], None)


# --- recall -----------------------------------------------------------------------------------------------------------


def test_pods_learn_by_when_to_save_and_the_status_names_their_workloads() -> None:
    world = PlanningWorld(plan("p", override("night", 2, T + HOUR, T + 3 * HOUR), recall={"notice": "10m"}))
    world.put(kube.PODS, a_pod("w-0", workload="w"))
    world.at(T)
    known = world.ahead()
    assert known is not None and known.recall == model.Deadline(10 * MINUTE, MINUTE)
    assert world.part.due == T + HOUR - 11 * MINUTE
    world.told = {"ns/w": (T + 59 * MINUTE, "p")}
    assert world.at(T + 50 * MINUTE) == {"w-0": timestamp(T + 59 * MINUTE)}
    assert world.status()["recalled"] == ["ns/w"]
    assert world.part.due == T + 50 * MINUTE + PERIOD
    assert world.at(T + 51 * MINUTE) == {}
    world.told = {}
    assert world.at(T + 52 * MINUTE) == {"w-0": None}
    assert "recalled" not in world.status()


def test_an_operator_that_was_away_when_a_foretold_quota_fell_lets_the_engine_stop_those_that_exceed_it() -> None:
    world = PlanningWorld(plan("p", override("night", 2, T + HOUR, T + 3 * HOUR), recall={}))
    world.at(T)
    world.restart()
    world.at(T + HOUR + 5 * MINUTE)
    assert (world.gpus(), world.steps()) == (2, [(HOUR, 2), (3 * HOUR, 8)])
    assert world.status()["recalledFor"] == timestamp(T + HOUR)
    world.restart()  # it is killed before it has stopped any
    world.at(T + HOUR + 6 * MINUTE)
    assert world.steps() == [(HOUR, 2), (3 * HOUR, 8)]
    assert world.part.due == T + HOUR + 6 * MINUTE + PERIOD
    world.at(T + HOUR + 6 * MINUTE + LATE)
    assert world.steps() == [(3 * HOUR, 8)]
    assert "recalledFor" not in world.status()
    world.restart()
    world.at(T + HOUR + 7 * MINUTE)
    assert world.steps() == [(3 * HOUR, 8)]


def test_a_plan_that_changes_the_present_stops_nobody() -> None:
    world = PlanningWorld(plan("p", override("night", 2, T - HOUR, T + 3 * HOUR), recall={}))
    world.at(T)
    assert (world.gpus(), world.steps()) == (2, [(3 * HOUR, 8)])
