"""Which QueuePolicy holds for which ClusterQueue, and which fixes follow."""

from __future__ import annotations

from typing import Any

import pytest
from tests.objects import as_stored

from gangline.api.read import policy_reader
from gangline.api.schema.kinds import CLUSTER_QUEUE
from gangline.control.feed.mirror import Mirror
from gangline.control.writes.status import policy_status, queue_status
from gangline.engine import model
from gangline.engine.model import FIXES
from gangline.kube import resources as kube

Json = dict[str, Any]


def a_policy(name: str, *names: str, **spec: Any) -> Any:
    return as_stored(
        {
            "metadata": {"name": name, "uid": name, "generation": 3},
            "spec": {"clusterQueues": {"names": list(names)} if names else {}, **spec},
        }
    )


def a_queue(name: str, **labels: str) -> Any:
    return as_stored(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": name, "uid": name, "labels": labels, "resourceVersion": "1"},
            "spec": {},
        }
    )


def test_selected_by_name_or_labels() -> None:
    by_labels = a_policy("p", clusterQueues={"matchLabels": {"team": "a", "tier": "gold"}})
    assert policy_reader.selects(a_policy("p", "cq"), a_queue("cq"))
    assert policy_reader.selects(by_labels, a_queue("x", team="a", tier="gold"))
    assert not policy_reader.selects(by_labels, a_queue("x", team="a"))
    assert not policy_reader.selects(a_policy("p"), a_queue("cq")), "an empty selection selects nothing"


def test_the_highest_precedence_holds_then_the_first_name() -> None:
    rivals = [a_policy("b", "cq"), a_policy("a", "cq"), a_policy("z", "cq", precedence=1)]
    assert policy_reader.in_force(rivals, a_queue("cq")) == rivals[2]
    assert policy_reader.in_force(rivals[:2], a_queue("cq")) == rivals[1]
    assert policy_reader.in_force(rivals, a_queue("other")) is None


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, policy_reader.ALWAYS),
        ({"fixes": {"disable": ["QuotaOfVictimsStillHeld"]}}, frozenset()),
        ({"profile": "Gangline"}, FIXES),
        ({"profile": "Gangline", "fixes": {"disable": ["HoldFreedQuota"]}}, FIXES - {"HoldFreedQuota"}),
        ({"fixes": {"enable": ["HoldFreedQuota", "Unknown"]}}, policy_reader.ALWAYS | {"HoldFreedQuota"}),
    ],
)
def test_fixes_follow_from_profile_and_choice(spec: Json, expected: frozenset[str]) -> None:
    assert policy_reader.fixes(a_policy("p", "cq", **spec)) == expected


def test_the_status_says_what_is_wrong() -> None:
    def active(policy: Json, *matched: str) -> Json:
        return policy_status.status(policy, policy_status.SelectedQueues(matched), now=0)["conditions"][0]

    assert active(a_policy("p", "cq"), "cq")["status"] == "True"
    assert active(a_policy("p", "cq"))["reason"] == "NothingSelected"
    wrong = active(a_policy("p", "cq", fixes={"enable": ["Unknown"]}), "cq")
    assert (wrong["status"], wrong["reason"]) == ("False", "UnknownFix")
    assert "spec.fixes" in wrong["message"]
    assert "Unknown" in wrong["message"]


def test_names_of_no_queue_and_shadowing_are_told() -> None:
    queues = {name: a_queue(name) for name in ("a", "b", "c")}

    def status_of(policy: Json, in_force: dict[str, str]) -> Json:
        chosen = policy_status.selection(policy, queues, in_force)
        return policy_status.status(policy, chosen, now=0)

    mine = a_policy("mine", "a")
    mine["spec"]["clusterQueues"]["names"] = ["a", "b", "typo", "typo2"]
    status = status_of(mine, {"a": "mine", "b": "other"})
    [row] = status["conditions"]
    assert (row["status"], row["reason"], status["matched"]) == ("True", "Ready", ["a"])
    assert row["message"] == (
        "In force for 1 ClusterQueue(s); no ClusterQueue has the name typo, typo2; for b QueuePolicy other is in force instead"
    )
    [row] = status_of(mine, {"a": "other", "b": "other"})["conditions"]
    assert (row["status"], row["reason"]) == ("False", "Shadowed") and "for a, b QueuePolicy other" in row["message"]
    [row] = status_of(a_policy("p", "none"), {})["conditions"]
    assert row["reason"] == "NothingSelected" and row["message"].endswith("no ClusterQueue has the name none")


def test_a_queue_shows_its_policy() -> None:
    def rows(policy: str, old: Json) -> list[Json]:
        status = model.QueueStatus(True, "Ready", "", 0, 0, 0, (), ())
        return queue_status.cluster_queue_status(status, old, now=0, generation=1, fair=False, policy=policy)[
            "conditions"
        ]

    first = rows("mine", {})
    assert [(row["type"], row["message"]) for row in first if row["type"] != "Active"] == [("QueuePolicy", "mine")]
    assert [row["type"] for row in rows("", {"conditions": first})] == ["Active"]
    [column] = [each for each in CLUSTER_QUEUE.versions[-1].columns if each.name == "Policy"]
    assert "QueuePolicy" in column.path


def test_a_policy_reaches_the_engine_whichever_comes_first() -> None:
    def fixes_observed(changes: list[model.Change]) -> frozenset[str]:
        puts = [c.item for c in changes if isinstance(c, model.Put) and isinstance(c.item, model.ClusterQueue)]
        return puts[-1].fixes

    for policy_first in (True, False):
        observed: list[model.Change] = []
        mirror = Mirror(observe=observed.append)
        steps = [(kube.QUEUE_POLICIES, a_policy("p", "cq", profile="Gangline")), (kube.CLUSTER_QUEUES, a_queue("cq"))]
        for resource, obj in steps if policy_first else reversed(steps):
            mirror.upsert(resource, obj)
        assert fixes_observed(observed) == FIXES
        mirror.remove(kube.QUEUE_POLICIES, "p")
        assert fixes_observed(observed) == policy_reader.ALWAYS


def test_recovery_is_off_unless_the_policy_speaks_of_it() -> None:
    assert policy_reader.recovery(None) is None
    assert policy_reader.recovery(a_policy("p", "q", profile="Gangline")) is None
    assert policy_reader.recovery(a_policy("p", "q", recovery={})) == model.Recovery()


def test_everything_said_of_recovery_reaches_the_engine() -> None:
    said = {
        "enabled": False,
        "spares": "12.5%",
        "lend": False,
        "preemptToHeal": False,
        "soak": "1m30s",
        "swapBudget": 2,
        "tolerationSeconds": 0,
        "breaker": "0.25",
        "forceDelete": True,
        "proactive": True,
        "probeNodes": True,
        "restartGraceSeconds": 3,
    }
    expected = model.Recovery(False, 0, 12.5, False, False, 90.0, 2, 0, 0.25, True, True, True, 3)
    assert policy_reader.recovery(a_policy("p", "q", recovery=said)) == expected
    assert policy_reader.recovery(a_policy("p", "q", recovery={"spares": 3})) == model.Recovery(spares=3)


def test_order_and_backfill_reach_the_engine_as_they_are_written() -> None:
    policy = a_policy(
        "p",
        "cq",
        order={
            "key": "AgedShortestFirst",
            "optimism": "0.75",
            "ageWeight": "2500m",
            "halfLife": "24h",
            "maxWait": "48h",
        },
        backfill={
            "depth": "Conservative",
            "candidates": "ShortestFirst",
            "maxCandidates": 50,
            "quantiles": {"running": "0.6", "candidate": "0.95"},
            "revoke": "Any",
            "overdueFactor": "1500m",
            "idleShare": "0.1",
            "lossBudget": "0.01",
            "restartCost": "90s",
            "giveWay": {
                "longerThan": "10",
                "longerThanBackfilled": "300m",
                "lossShare": "0.1",
                "maxPreemptions": 3,
                "lossBudget": "0.004",
            },
        },
    )
    assert policy_reader.ordering(policy) == model.Ordering(
        "AgedShortestFirst", age_weight=2.5, half_life_seconds=86_400.0, max_wait_seconds=172_800.0, optimism=0.75
    )
    assert policy_reader.backfill(policy) == model.Backfill(
        model.UNLIMITED,
        "ShortestFirst",
        50,
        0.6,
        0.95,
        "Any",
        overdue_factor=1.5,
        idle_share=0.1,
        checkpoint_preemption=model.CheckpointPreemption(10.0, 0.1, longer_than_backfilled=0.3, max_preemptions=3),
        loss_budget=0.004,
        restart_seconds=90.0,
    )


def test_without_a_word_of_it_a_queue_stays_as_kueue_has_it() -> None:
    assert policy_reader.backfill(None) is None and policy_reader.ordering(None) is None
    silent = a_policy("p", "cq", order={"key": "Priority", "halfLife": "168h"})
    assert policy_reader.backfill(silent) is None and policy_reader.ordering(silent) is None
    by_index = a_policy("p", "cq", order={"key": "Priority", "optimism": "1"})
    assert policy_reader.ordering(by_index) == model.Ordering(optimism=1.0)  # for candidates
    assert policy_reader.backfill(a_policy("p", "cq", profile="Gangline")) == model.Backfill()
