"""Signals of nodes: what each means, when it counts, and when a node is trusted again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engine.node_world import TPU, NodeWorld, node, plain, queue

from gangline.engine.model import (
    DEGRADED,
    HEALTH_SIGNALS,
    LEAVING,
    LOST,
    SUSPECT,
    BoundPod,
    Gone,
    HealthPolicy,
    Node,
    Put,
    Recovery,
    Taint,
    Toleration,
    Workload,
    WorkloadPods,
)
from gangline.engine.model.units import millis
from gangline.engine.nodes.health import NodeHealth
from gangline.engine.nodes.pod_locations import Complaints

NOW = 1_000_000_000
DOCS = Path(__file__).parents[2] / "docs" / "hotswap.md"


def health(*nodes: Node, policy: HealthPolicy | None = None, soak: float = 60.0) -> NodeHealth:
    found = NodeHealth(policy or HealthPolicy(), lambda _: millis(soak))
    for each in nodes or (node("n"),):
        found.put_node(each, each.name)
    found.advance(NOW)
    return found


def means(found: NodeHealth, name: str = "n") -> str:
    """What a node counts as, in a word."""
    loss = found.loss(name)
    if loss is not None:
        return DEGRADED if loss.devices_only else LOST
    if found.leaving(name):
        return LEAVING
    return "" if found.usable(name) else SUSPECT


def tainted(key: str, effect: str = "NoSchedule") -> dict[str, Any]:
    return {"taints": (Taint(key, effect=effect),)}


SHOWN: dict[str, dict[str, Any]] = {
    "NotReady": {"ready": False, "conditions": {"Ready": ("False", NOW)}},
    "Unreachable": {"ready": False, "conditions": {"Ready": ("Unknown", NOW)}},
    "Silent": tainted("gangline.io/silent", "NoSchedule"),
    "OutOfService": tainted("node.kubernetes.io/out-of-service", "NoExecute"),
    "UnreachableTaint": tainted("node.kubernetes.io/unreachable", "NoExecute"),
    "NotReadyTaint": tainted("node.kubernetes.io/not-ready", "NoExecute"),
    "Vacated": tainted("gangline.io/vacate"),
    "Cordoned": {"unschedulable": True},
    "ImpendingTermination": tainted("cloud.google.com/impending-node-termination"),
    "SpotInterruption": tainted("aws-node-termination-handler/spot-itn"),
    "ScaleDown": tainted("ToBeDeletedByClusterAutoscaler"),
    "Disrupted": tainted("karpenter.sh/disrupted"),
    "Maintenance": {"labels": {"cloud.google.com/active-node-maintenance": "ONGOING"}},
    "MaintenanceDue": {"labels": {"cloud.google.com/scheduled-maintenance-time": str(NOW // 1000 + 600)}},
    "Quarantined": {"labels": {"dgxc.nvidia.com/nvsentinel-state": "quarantined"}},
    "Throttled": {"annotations": {"gangline.io/throttled": "true"}},
    "QuarantineEvent": {"annotations": {"quarantineHealthEvent": "{}"}},
}


@pytest.mark.parametrize("signal", HEALTH_SIGNALS, ids=lambda signal: signal.kind)
def test_every_signal_counts_when_its_grace_is_over(signal: Any) -> None:
    found = health()
    if signal.read in ("Object", "Pods"):
        found.note("n", signal.kind, active=True)
    elif signal.read == "Condition":
        found.put_node(node("n", conditions={signal.key: ("True", NOW)}), "n")
    else:
        found.put_node(node("n", **SHOWN[signal.kind]), "n")
    found.advance(NOW)
    grace = signal.grace
    if grace:
        found.advance(NOW + grace - 1)
        assert means(found) in ("", SUSPECT)
        assert found.usable("n") == (signal.means == SUSPECT)
        assert found.next_due() == NOW + grace
    found.advance(NOW + grace)
    assert means(found) == signal.means
    assert not found.usable("n")


@pytest.mark.parametrize(
    "shown",
    [
        {"labels": {"cloud.google.com/active-node-maintenance": "false"}},
        {"labels": {"dgxc.nvidia.com/nvsentinel-state": "remediation-succeeded"}},
        {"labels": {"cloud.google.com/scheduled-maintenance-time": "soon"}},
        {"annotations": {"gangline.io/throttled": "false"}},
        {"conditions": {"Ready": ("True", NOW), "KernelDeadlock": ("False", NOW), "MemoryPressure": ("True", NOW)}},
        tainted("dedicated"),
    ],
)
def test_what_is_no_signal(shown: dict[str, Any]) -> None:
    assert means(health(node("n", **shown))) == ""


def test_the_docs_have_the_whole_table() -> None:
    rows = [line.split("|") for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    for signal in HEALTH_SIGNALS:
        (row,) = [row for row in rows if f"`{signal.kind}`" in row[1]]
        assert row[3].strip() == signal.means
        assert f"{signal.grace / 1000:g}" in row[4]


def test_grace_runs_from_when_the_node_says() -> None:
    found = health(node("n", ready=False, conditions={"Ready": ("False", NOW - 10_000)}))
    loss = found.loss("n")
    assert loss is not None
    assert (loss.kind, loss.detected_at, loss.at) == ("NotReady", NOW - 10_000, NOW - 8_000)


def test_maintenance_is_heeded_an_hour_before() -> None:
    found = health(node("n", labels={"cloud.google.com/scheduled-maintenance-time": str(NOW // 1000 + 7200)}))
    assert found.usable("n")
    assert found.next_due() == NOW + 3_600_000
    found.advance(NOW + 3_600_000)
    assert means(found) == LEAVING


def test_the_policy_has_the_last_word() -> None:
    policy = HealthPolicy({"FpgaBroken": LOST, "KernelDeadlock": "Ignore", "GpuMemWatch": LOST}, {"NotReady": 30.0})
    broken = dict.fromkeys(("FpgaBroken", "KernelDeadlock", "GpuMemWatch"), ("True", NOW))
    found = health(
        *(node(kind, conditions={kind: condition}) for kind, condition in broken.items()),
        node("late", ready=False, conditions={"Ready": ("False", NOW)}),
        policy=policy,
    )
    assert means(found, "FpgaBroken") == LOST
    assert means(found, "KernelDeadlock") == ""
    found.advance(NOW + 10_000)
    assert means(found, "GpuMemWatch") == LOST
    assert found.loss("late") is None
    found.advance(NOW + 30_000)
    assert means(found, "late") == LOST


def flap(found: NodeHealth, at: int, uid: str = "uid-n") -> None:
    found.put_node(node("n", uid=uid, ready=False, conditions={"Ready": ("Unknown", at)}), "n")
    found.advance(at + 1_000)
    found.put_node(node("n", uid=uid, conditions={"Ready": ("True", at + 1_000)}), "n")
    found.advance(at + 1_000)


def test_a_node_that_returns_soaks_and_a_flapping_one_soaks_longer() -> None:
    found = health(soak=60)
    for number, soak in enumerate((60, 120, 240)):
        start = NOW + number * 1000
        flap(found, start)
        assert found.loss("n") is None
        assert found.why_unusable("n") == "Soaking"
        assert found.next_due() == start + 1000 + soak * 1000
    found.advance(NOW + 3_000 + 240_000)
    assert found.usable("n")
    flap(found, NOW + 2_000_000)  # the others are long ago
    assert found.next_due() == NOW + 2_001_000 + 60_000


def test_a_short_doubt_is_no_loss() -> None:
    found = health(node("n", ready=False, conditions={"Ready": ("False", NOW)}))
    assert not found.usable("n")
    found.put_node(node("n"), "n")
    found.advance(NOW + 1_000)
    assert found.usable("n")


def test_a_deleted_node_is_lost_at_once_until_it_is_forgotten_or_returns() -> None:
    found = health()
    found.put_node(None, "n")
    found.advance(NOW)
    assert found.lost()["n"].kind == "Deleted"
    found.put_node(node("n"), "n")
    found.advance(NOW)
    assert means(found) == SUSPECT  # it soaks
    found.put_node(None, "n")
    found.advance(NOW)
    found.forget("n")
    assert found.lost() == {}
    assert list(found.last_known()) == []


def test_another_node_of_the_same_name_is_used_at_once() -> None:
    """It has not failed, however long it takes to become ready for the first time."""
    found = health(node("n", uid="old"))
    flap(found, NOW, "old")
    assert found.why_unusable("n") == "Soaking"
    found.put_node(None, "n")
    found.advance(NOW + 2_000)
    found.put_node(node("n", uid="new", ready=False, conditions={"Ready": ("False", NOW + 2_000)}), "n")
    found.advance(NOW + 20_000)
    assert means(found) == LOST
    found.put_node(node("n", uid="new"), "n")
    found.advance(NOW + 20_000)
    assert found.usable("n")
    flap(found, NOW + 30_000, "new")
    assert found.why_unusable("n") == "Soaking", "but now it has"
    assert found.next_due() == NOW + 31_000 + 60_000, "and for the first time"


def test_a_new_node_that_pods_named_before_it_was_seen_is_used_at_once() -> None:
    found = health()
    found.note("late", "Unknown", active=True)
    found.advance(NOW)
    found.advance(NOW + 20_000)
    assert means(found, "late") == LOST
    found.put_node(node("late"), "late")
    found.advance(NOW + 20_000)
    assert found.usable("late")


def test_lost_devices_become_a_lost_node() -> None:
    found = health(node("n", conditions={"GpuMemWatch": ("True", NOW - 60_000)}))
    assert means(found) == DEGRADED
    found.put_node(replace(node("n"), ready=False, conditions={"Ready": ("Unknown", NOW)}), "n")
    found.advance(NOW + 1_000)
    assert means(found) == LOST


def test_a_taint_counts_only_for_those_who_do_not_tolerate_it() -> None:
    found = health(node("n", taints=(Taint("broken", effect="NoExecute"), Taint("x", effect="NoSchedule"))))
    assert found.untolerated("n", ()) == Taint("broken", effect="NoExecute")
    assert found.untolerated("n", (Toleration("broken", "Exists"),)) is None
    assert found.unfit() == ["n"]


# --- what pods tell ---------------------------------------------------------------------------------------------------


def world() -> NodeWorld:
    found = NodeWorld(node("n1"), node("n2"), queue(8))
    found.put(plain("w1", 1))
    found.settle(2)
    assert [pod.node for pod in found.pods["team/w1"]] == ["n1"]
    return found


def test_fewer_devices_than_pods_use_degrade_the_node() -> None:
    found = world()
    found.put(replace(found.nodes["n1"], capacity={TPU: 4}, allocatable={TPU: 3, "pods": 110}))
    found.decide()
    assert found.engine._store.health.why_unusable("n1") == "DevicesMissing"
    found.put(replace(found.nodes["n2"], capacity={TPU: 4}, allocatable={TPU: 3, "pods": 110}))
    found.decide()
    assert found.engine._store.health.usable("n2")  # nobody there lacks it


def going(*nodes: str, due: int = 0) -> tuple[BoundPod, ...]:
    return tuple(BoundPod(f"p-{name}", "main", name, terminating=True, due=due) for name in nodes)


def test_pods_that_do_not_end_keep_others_away() -> None:
    found = world()
    found.engine.observe(Put(WorkloadPods("team/w1", going("n1"))))
    found.decide()
    assert found.engine._store.health.usable("n1")
    found.tick(120)
    found.decide()
    assert found.engine._store.health.why_unusable("n1") == "StuckTerminating"


def test_pods_may_take_as_long_to_end_as_their_grace_period_says() -> None:
    found = world()
    found.engine.observe(Put(WorkloadPods("team/w1", going("n1", due=found.now + 900_000))))
    for _ in range(10):
        found.decide()
        assert found.engine._store.health.usable("n1")
        found.tick(100)
    found.decide()
    found.tick(20)
    found.decide()
    assert found.engine._store.health.why_unusable("n1") == "StuckTerminating"


def test_pods_that_no_admitted_gang_stands_behind_say_nothing_of_their_nodes() -> None:
    found = world()
    found.engine.observe(Put(WorkloadPods("mallory/no-such-workload", going("n1", "n2"), (("x", "n1"), ("y", "n2")))))
    found.decide()
    found.tick(200)
    found.decide()
    assert all(found.engine._store.health.usable(name) for name in ("n1", "n2"))


def test_a_gang_that_ended_leaves_its_complaint_while_its_pods_are_there() -> None:
    found = world()
    found.engine.observe(Put(WorkloadPods("team/w1", (), (("p", "n1"),))))
    found.decide()
    found.engine.observe(Gone(Workload, "team/w1"))
    found.decide()
    assert found.engine._store.health.why_unusable("n1") == "PodsFailed"


def test_of_one_namespace_only_one_gang_makes_nodes_suspect() -> None:
    found = Complaints()
    for number in range(12):
        found.put((f"n{number}", "StuckTerminating"), {f"mallory/w{number}": NOW})
    assert [number for number in range(12) if found.since((f"n{number}", "StuckTerminating"))] == [0]
    changed = found.put(("n0", "StuckTerminating"), {})
    assert changed == {("n0", "StuckTerminating"), ("n1", "StuckTerminating")}
    assert found.since(("n0", "StuckTerminating")) is None
    assert found.since(("n1", "StuckTerminating")) == NOW


def test_gangs_of_two_namespaces_confirm_each_other() -> None:
    found = Complaints()
    found.put(("n0", "PodsFailed"), {"a/one": 0})
    found.put(("n1", "PodsFailed"), {"a/two": 0})
    assert found.since(("n1", "PodsFailed")) is None
    found.put(("n2", "PodsFailed"), {"b/one": 0})
    found.put(("n1", "PodsFailed"), {"a/two": 0, "b/two": 0})
    assert found.since(("n1", "PodsFailed")) == 0
    for name in ("n0", "n1", "n2"):
        found.put((name, "PodsFailed"), {})
    assert not found._made and not found._by and not found._heard


@pytest.mark.parametrize(("recovery", "soaks"), [(None, 0), (Recovery(soak_seconds=5), 5)])
def test_a_node_that_returns_soaks_only_where_a_policy_says_so(recovery: Recovery | None, soaks: int) -> None:
    found = NodeWorld(queue(8, recovery=recovery), node("n1"), node("n2"))
    found.decide()
    found.put(replace(found.nodes["n1"], ready=False, conditions={"Ready": ("Unknown", found.now)}))
    found.tick(1)
    found.decide()
    assert not found.engine._store.health.usable("n1")
    found.put(node("n1"))
    found.decide()
    assert found.engine._store.health.usable("n1") == (not soaks)
    found.tick(soaks)
    found.decide()
    assert found.engine._store.health.usable("n1")


def test_a_node_that_was_made_again_is_used_at_once_whatever_the_policy_says() -> None:
    found = NodeWorld(queue(8, recovery=Recovery(soak_seconds=600)), node("n1", uid="one"))
    found.decide()
    found.engine.observe(Gone(Node, "n1"))
    found.decide()
    assert not found.engine._store.health.usable("n1")
    found.put(node("n1", uid="other"))
    found.decide()
    assert found.engine._store.health.usable("n1")


def test_a_soak_follows_a_policy_that_changes_meanwhile() -> None:
    found = NodeWorld(queue(8, recovery=Recovery(soak_seconds=600)), node("n1"))
    found.decide()
    found.engine.observe(Gone(Node, "n1"))
    found.decide()
    found.put(node("n1"))
    found.decide()
    assert not found.engine._store.health.usable("n1")
    found.put(queue(8, recovery=Recovery(soak_seconds=5)))
    found.tick(5)
    found.decide()
    assert found.engine._store.health.usable("n1")


def test_a_node_that_fails_pods_is_doubted_for_some_minutes() -> None:
    found = world()
    health = found.engine._store.health
    here = BoundPod("p", "main", "n2")

    def failed(*names: str) -> None:
        found.engine.observe(Put(WorkloadPods("team/w1", (here,), tuple((name, "n1") for name in names))))
        found.decide()

    failed("a")
    assert health.why_unusable("n1") == "PodsFailed"
    found.tick(200)
    failed("a", "b")
    found.tick(200)
    found.decide()
    assert not health.usable("n1"), "it has failed another since"
    assert found.engine.next_wakeup(found.now) == found.now + 99_000
    found.tick(98)
    found.decide()
    assert health.usable("n1"), "what failed is still listed, and long ago"
    failed("a", "b", "c")
    assert not health.usable("n1")
    failed()
    assert health.usable("n1")


def test_pods_on_a_node_that_was_never_seen() -> None:
    found = world()
    found.engine.observe(Put(WorkloadPods("team/w1", (BoundPod("p", "main", "elsewhere"),))))
    found.decide()
    assert found.engine._store.health.loss("elsewhere") is None
    found.tick(10)
    found.decide()
    assert "elsewhere" in found.engine._store.health.lost()


def test_without_any_node_nothing_is_known_of_nodes() -> None:
    found = NodeWorld(queue(8))
    found.put(plain("w1", 1))
    found.decide()
    found.engine.observe(Put(WorkloadPods("team/w1", (BoundPod("p", "main", "elsewhere"),))))
    found.tick(100)
    assert found.decide() == []
    assert found.running() == ["w1"]
