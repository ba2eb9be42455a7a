"""Concurrent admission: the plan of a family, carried out by a small world without an API server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from gangline.api import names
from gangline.api.read import conditions
from gangline.control.kinds import variant_bodies as bodies
from gangline.control.kinds import variant_plan as family
from gangline.control.kinds.steps import ChangeStatus, CreateWorkload, DeleteWorkload, PatchWorkload
from gangline.control.writes.status import run_changes, status_changes
from gangline.kube.resources import Json
from gangline.objects import WorkloadObject

NOW = 1_770_000_000_000
FLAVORS = ("reservation", "demand", "spot")
RULE = family.VariantRule(FLAVORS, "TryPreferredFlavors")
RETAIN = family.VariantRule(FLAVORS, "RetainFirstAdmission")


class Cluster:
    """The parent and its variants as an API server would keep them; the operator may die between any two writes."""

    def __init__(self, rule: family.VariantRule | None = RULE, **spec: Any) -> None:
        self.rule = rule
        self.now = NOW
        self.count = 0
        self.events: list[str] = []
        self.parent: WorkloadObject | None = self._stored(
            {
                "metadata": {
                    "name": "job-train-abcde",
                    "namespace": "team",
                    "labels": {names.JOB_UID: "j"},
                    "finalizers": [names.IN_USE_FINALIZER],
                },
                "spec": {"podSets": [{"name": "main", "count": 2}], "queueName": "q", "priority": 3, **spec},
            }
        )
        self.variants: dict[str, WorkloadObject] = {}

    def _stored(self, body: Json) -> WorkloadObject:
        self.count += 1
        body["metadata"] = {**body["metadata"], "uid": f"uid-{self.count}", "resourceVersion": str(self.count)}
        return WorkloadObject({"status": {}, **body})

    def plan(self) -> family.VariantPlan:
        assert self.parent is not None
        return family.plan(family.VariantFamily(self.parent, list(self.variants.values()), self.rule), self.now)

    def settle(self, most: int = 1_000) -> None:
        """Plan and write until nothing is left to do; at most `most` writes."""
        for _ in range(50):
            made = self.plan()
            if not made.steps:
                return
            for step, event in made.steps:
                if most <= 0:
                    return
                most -= 1
                self.write(step)
                if event is not None:
                    self.events.append(event.happened)
        raise AssertionError("it never ends")

    def write(self, step: family.Step) -> None:
        match step:
            case CreateWorkload(body):
                made = self._stored(body)
                assert made["metadata"]["name"] not in {each["metadata"]["name"] for each in self.variants.values()}
                self.variants[bodies.flavor_of(made)] = made
            case DeleteWorkload(workload):
                workload["metadata"]["deletionTimestamp"] = conditions.timestamp(self.now)
                self._collect(workload)
            case PatchWorkload(workload, body):
                for part, fields in body.items():
                    for field, value in fields.items():
                        if isinstance(value, dict):
                            merged = {**workload[part].get(field, {}), **value}
                            workload[part][field] = {key: each for key, each in merged.items() if each is not None}
                        elif value is None:
                            workload[part].pop(field, None)
                        else:
                            workload[part][field] = value
                self._collect(workload)
            case ChangeStatus(workload, _, change):
                change(workload["status"], self.now)

    def _collect(self, workload: WorkloadObject) -> None:
        if "deletionTimestamp" in workload["metadata"] and not workload["metadata"].get("finalizers"):
            self.variants = {flavor: each for flavor, each in self.variants.items() if each is not workload}

    # --- what the engine and the job do ---

    def admit(self, flavor: str) -> None:
        variant = self.variants[flavor]
        variant["status"]["admission"] = {
            "clusterQueue": "q",
            "podSetAssignments": [{"name": "main", "count": 2, "flavors": {"cpu": flavor}}],
        }
        for kind in (names.QUOTA_RESERVED, names.ADMITTED):
            self.say(variant, kind, True, kind)
        for kind in (names.EVICTED,):
            if variant.is_true(kind):
                self.say(variant, kind, False, "QuotaReserved")

    def evict(self, flavor: str, reason: str = "Preempted") -> None:
        self.say(self.variants[flavor], names.EVICTED, True, reason)

    def say(self, workload: Json, kind: str, status: bool, reason: str) -> None:
        rows = workload["status"].setdefault("conditions", [])
        conditions.put(rows, kind, status, reason, reason, now=self.now)

    def stop_job(self) -> None:
        assert self.parent is not None
        status_changes.release(self.parent["status"], self.now)

    def active(self) -> list[str]:
        return [flavor for flavor, each in sorted(self.variants.items()) if each["spec"].get("active") is not False]

    def running(self) -> str:
        """The flavor on which the job runs."""
        assert self.parent is not None
        if not self.parent.admitted:
            return ""
        return self.parent["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"]

    def evicted(self) -> str:
        assert self.parent is not None
        found = self.parent.true_condition(names.EVICTED)
        return found["reason"] if found is not None else ""


def started(rule: family.VariantRule = RULE, flavor: str = "demand", **spec: Any) -> Cluster:
    here = Cluster(rule, **spec)
    here.settle()
    here.admit(flavor)
    here.settle()
    assert here.running() == flavor
    return here


def test_a_workload_becomes_a_parent_with_one_variant_for_each_flavor() -> None:
    here = Cluster()
    here.settle()
    assert here.parent is not None
    assert bodies.is_parent(here.parent)
    assert sorted(here.variants) == sorted(FLAVORS)
    spot = here.variants["spot"]
    assert spot["metadata"]["name"].startswith("job-train-variant-spot-")
    assert spot["metadata"]["labels"] == {names.JOB_UID: "j"}
    assert spot["metadata"]["finalizers"] == [names.IN_USE_FINALIZER]
    assert spot["spec"]["preemptionGates"] == [{"name": names.CONCURRENT_GATE}]
    assert bodies.variant_of(spot["metadata"]) == here.parent["metadata"]["uid"]
    assert here.events == ["CreatedVariant"] * 3
    assert here.plan().steps == []


def test_a_workload_that_was_admitted_before_goes_on_alone() -> None:
    here = Cluster(None)
    assert here.parent is not None
    here.parent["status"]["admission"] = {"clusterQueue": "q"}
    here.say(here.parent, names.QUOTA_RESERVED, True, "QuotaReserved")
    here.rule = RULE
    here.settle()
    assert here.variants == {}


def test_the_job_starts_with_the_first_variant_and_moves_only_up() -> None:
    here = started()
    assert here.parent is not None
    assert here.parent.condition(names.ADMITTED) is not None
    assert here.active() == ["demand", "reservation"]
    assert (here.parent.condition(names.PODS_READY) or {})["status"] == "False"


@pytest.mark.parametrize(("last", "active"), [("reservation", ["reservation", "spot"]), ("demand", sorted(FLAVORS))])
def test_flavors_after_the_last_acceptable_one_are_given_up(last: str, active: list[str]) -> None:
    here = started(family.VariantRule(FLAVORS, "TryPreferredFlavors", last), "spot")
    assert here.active() == active


def test_all_others_are_given_up_where_the_first_admission_is_retained() -> None:
    assert started(RETAIN).active() == ["demand"]


def test_a_migration_releases_the_variant_only_after_the_job_has_stopped() -> None:
    here = started()
    here.evict("demand", "FlavorMigration")
    here.settle()
    assert here.evicted() == "VariantEvicted"
    assert "admission" in here.variants["demand"]["status"]
    here.stop_job()
    here.settle()
    assert "admission" not in here.variants["demand"]["status"]
    assert here.active() == sorted(FLAVORS)
    here.admit("reservation")
    here.settle()
    assert (here.running(), here.evicted(), here.active()) == ("reservation", "", ["reservation"])


def test_what_the_parent_knows_of_the_run_reaches_its_variant() -> None:
    here = started()
    assert here.parent is not None
    run_changes.pods_ready(True)(here.parent["status"], here.now + 5_000)
    here.parent["status"]["reclaimablePods"] = [{"name": "main", "count": 1}]
    here.settle()
    variant = here.variants["demand"]
    assert variant.condition(names.PODS_READY) == here.parent.condition(names.PODS_READY)
    assert variant["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]


def test_a_finished_parent_finishes_its_variants_which_then_may_go() -> None:
    here = started()
    assert here.parent is not None
    run_changes.finish(False, "boom")(here.parent["status"], here.now)
    here.settle()
    for variant in here.variants.values():
        found = variant.condition(names.FINISHED) or {}
        assert (found["reason"], found["message"]) == ("Failed", "boom")
        assert not variant["metadata"].get("finalizers")


def test_a_deactivated_parent_is_evicted_and_its_variants_are_deactivated() -> None:
    here = started()
    assert here.parent is not None
    here.parent["spec"]["active"] = False
    here.settle()
    assert here.active() == []
    here.evict("demand", "Deactivated")
    here.settle()
    assert here.evicted() == "Deactivated"
    here.stop_job()
    here.settle()
    assert "admission" not in here.variants["demand"]["status"]


def test_a_runtime_limit_of_the_variant_ends_the_job() -> None:
    here = started()
    assert here.parent is not None
    here.evict("demand", "DeactivatedDueToMaximumExecutionTimeExceeded")
    here.settle()
    assert here.parent["spec"]["active"] is False
    assert here.evicted() == "DeactivatedDueToMaximumExecutionTimeExceeded"


def test_a_variant_that_a_check_rejected_is_not_tried_again() -> None:
    here = Cluster()
    here.settle()
    here.evict("reservation", "DeactivatedDueToAdmissionCheck")
    here.variants["reservation"]["spec"]["active"] = False
    here.settle()
    assert here.active() == ["demand", "spot"]


def test_a_deleted_variant_keeps_its_quota_until_the_job_has_stopped_and_is_created_again() -> None:
    here = started()
    old = here.variants["demand"]
    here.write(DeleteWorkload(old))
    here.settle()
    assert here.evicted() == "VariantEvicted"
    assert here.variants["demand"] is old
    here.stop_job()
    here.settle()
    assert here.variants["demand"] is not old


def test_a_variant_of_a_flavor_that_left_the_queue_goes_and_a_new_flavor_gets_one() -> None:
    here = started(flavor="reservation")
    here.rule = family.VariantRule(("reservation", "new"), "TryPreferredFlavors")
    here.settle()
    assert sorted(here.variants) == ["new", "reservation"]
    assert here.active() == ["reservation"]
    assert "DeletedVariant" in here.events


def test_variants_follow_what_their_parent_asks_for_and_with_quota_only_its_priority() -> None:
    here = started()
    assert here.parent is not None
    here.parent["spec"].update(priority=9, podSets=[{"name": "main", "count": 5}])
    here.settle()
    demand, reservation = (here.variants[flavor]["spec"] for flavor in ("demand", "reservation"))
    assert (demand["priority"], demand["podSets"][0]["count"]) == (9, 2)
    assert (reservation["priority"], reservation["podSets"][0]["count"]) == (9, 5)


def test_without_a_policy_the_parent_is_a_workload_like_any_other() -> None:
    here = started()
    assert here.parent is not None
    here.rule = None
    here.settle()
    assert not bodies.is_parent(here.parent)
    assert here.variants == {}
    assert (here.running(), here.evicted()) == ("demand", "")


def test_a_parent_that_goes_keeps_the_variant_with_quota_and_no_other_one() -> None:
    here = started()
    assert here.parent is not None
    here.parent["metadata"]["deletionTimestamp"] = conditions.timestamp(NOW)
    here.settle()
    assert sorted(here.variants) == ["demand"]
    for _ in range(3):
        for step in family.leave(here.variants["demand"]) if here.variants else ():
            here.write(step)
    assert here.variants == {}


# --- preemption gates -------------------------------------------------------------------------------------------------


def blocked(here: Cluster, *flavors: str) -> None:
    for flavor in flavors:
        here.say(here.variants[flavor], names.QUOTA_RESERVED, False, "AdmissionGated")
        here.say(here.variants[flavor], names.BLOCKED_ON_GATES, True, "PreemptionGated")


def opened(here: Cluster) -> list[str]:
    gates = {flavor: each["status"].get("preemptionGates", ()) for flavor, each in sorted(here.variants.items())}
    return [flavor for flavor, rows in gates.items() if any(row["position"] == "Open" for row in rows)]


def test_one_gate_at_a_time_opens_the_most_preferred_first_each_for_five_minutes() -> None:
    here = Cluster()
    here.settle()
    blocked(here, "demand", "spot")
    here.settle()
    assert opened(here) == []  # the most preferred one has not been tried yet
    here.say(here.variants["reservation"], names.QUOTA_RESERVED, False, "WaitingForQuota")
    here.settle()
    assert opened(here) == ["demand"]
    assert here.plan().due == NOW + 300_000
    here.now += 299_000
    here.settle()
    assert opened(here) == ["demand"]
    here.now += 1_000
    here.settle()
    assert opened(here) == ["demand", "spot"]


def test_an_eviction_closes_the_gates_again() -> None:
    here = Cluster()
    here.settle()
    blocked(here, "demand")
    here.say(here.variants["reservation"], names.QUOTA_RESERVED, False, "WaitingForQuota")
    here.settle()
    status = here.variants["demand"]["status"]
    from gangline.engine import model

    change = status_changes.evict(model.Evict("team/x", "uid", "FlavorMigration", "moves"))
    change(status, here.now)
    assert opened(here) == []
    found = here.variants["demand"].condition(names.BLOCKED_ON_GATES) or {}
    assert (found["status"], found["reason"]) == ("False", "FlavorMigration")


# --- whatever happens -------------------------------------------------------------------------------------------------

_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("admit", "evict", "stop", "delete", "die")), st.sampled_from(FLAVORS), st.integers(0, 4)
    ),
    max_size=25,
)


@examples(80)
@given(_EVENTS)
def test_a_running_job_always_has_a_variant_with_its_quota(events: list[tuple[str, str, int]]) -> None:
    """Whenever the process dies, and whatever the engine decides, quota is not released under a job that runs."""
    here = Cluster()
    for kind, flavor, most in events:
        variant = here.variants.get(flavor)
        if kind == "admit" and variant is not None and "admission" not in variant["status"]:
            others = [each for each in here.variants.values() if "admission" in each["status"]]
            if not others and variant["spec"].get("active") is not False:
                here.admit(flavor)
        elif kind == "evict" and variant is not None and "admission" in variant["status"]:
            here.evict(flavor)
        elif kind == "stop" and here.evicted():
            here.stop_job()
        elif kind == "delete" and variant is not None:
            here.write(DeleteWorkload(variant))
        here.settle(most if kind == "die" else 1_000)
        assert here.parent is not None
        if "admission" in here.parent["status"]:
            holding = [each for each in here.variants.values() if "admission" in each["status"]]
            assert len(holding) == 1
            assert holding[0]["status"]["admission"] == here.parent["status"]["admission"]
