"""What is done when the engine says that a gang lost nodes, and what is written down of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.objects import Json, T, a_node, a_pod
from tests.builders.parts import PartWorld
from tests.objects import PodObject, WorkloadObject, altered

from gangline.api import names
from gangline.api.read import conditions
from gangline.api.read.workloads import swap_record
from gangline.api.read.workloads.swap_record import RecordedSwap, SwapRecord
from gangline.control.feed.mirror import Mirror
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.nodes.recovery import swap_rules
from gangline.control.nodes.recovery.swap_rules import describe, holds_back, wanted_pods
from gangline.control.nodes.recovery.swaps import Recoveries
from gangline.control.parts.messages import EvictionWanted, Messages
from gangline.control.writes.status import run_changes
from gangline.engine import model
from gangline.kube import resources as kube

NOTHING = SwapRecord()


def a_workload(record: SwapRecord = NOTHING, *, pods: int = 3, admitted: bool = True, **status: Any) -> WorkloadObject:
    assignment = {"name": "main", "count": pods, "flavors": {}, "resourceUsage": {}}
    said: Json = {"conditions": [{"type": "Admitted", "status": "True", "reason": "A", "message": ""}]}
    said["conditions"].append({"type": "QuotaReserved", "status": "True", "reason": "Q", "message": ""})
    if record.current is not None:
        said["conditions"].append({"type": "Recovered", "status": "False", "reason": "Swapping", "message": ""})
    if admitted:
        said["admission"] = {"clusterQueue": "cq", "podSetAssignments": [assignment]}
    template = {"spec": {"containers": [{"name": "c"}]}}
    return WorkloadObject(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": "w",
                "namespace": "ns",
                "uid": "uw",
                "resourceVersion": swap_record.write(record),
                "annotations": {names.RECOVERY: swap_record.write(record)} if record != NOTHING else {},
            },
            "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": pods, "template": template}]},
            "status": {**said, **status},
        }
    )


class RecoveryWorld(PartWorld):
    """A gang that recovers, and its pods."""

    def __init__(self, workload: WorkloadObject, *pods: PodObject) -> None:
        super().__init__()
        self.metrics, self.failures, self.messages = Metrics(), [], Messages()
        self.recoveries = Recoveries(self.context(metrics=self.metrics, messages=self.messages), self.failures.append)
        self.put(kube.WORKLOADS, workload)
        self.put(kube.PODS, *pods)

    def record(self) -> SwapRecord:
        workload = self.mirror.workloads.get("ns/w")
        assert workload is not None
        return swap_record.of(workload)

    def written(self) -> Json:
        """The API server takes the last write."""
        _, body, done, _ = self.writes.sent.pop()
        assert body is not None
        workload = self.mirror.workloads.get("ns/w")
        assert workload is not None
        said = body["metadata"]["annotations"]
        answer = altered(
            workload,
            metadata={**workload.metadata, "annotations": said, "resourceVersion": said[names.RECOVERY]},
        )
        self.mirror.upsert(kube.WORKLOADS, answer)
        done(answer)
        return body


def heal(how: str = "Replace", *lost: str, uid: str = "uw") -> model.Heal:
    return model.Heal("ns/w", uid, how, lost or ("n1",), "NotReady", "Lost node n1 (NotReady)", T - 3000, T)


def gang() -> tuple[PodObject, ...]:
    return (a_pod("p0", "n1"), a_pod("p1", "n2"), a_pod("p2", "n3"))


def test_the_record_comes_first_and_nothing_is_deleted_before_it() -> None:
    world = RecoveryWorld(a_workload(), *gang())
    world.recoveries.heal(heal())
    world.recoveries.act(T)
    assert world.writer.take() == []
    body = world.written()
    assert body["metadata"]["resourceVersion"] == swap_record.write(SwapRecord())
    [swap] = world.record().log
    assert (swap.how, swap.lost, swap.kept, swap.detected, swap.decided) == (
        "Replace",
        ("n1",),
        ("n2", "n3"),
        T - 3000,
        T,
    )
    [(_, slot, change)] = world.writes.changes
    status: Json = {}
    change(status, T)
    assert slot == "recovery"
    assert [(row["type"], row["status"], row["reason"]) for row in status["conditions"]] == [
        ("Recovered", "False", "Swapping")
    ]
    assert world.recorder.said == [("NodesLost", "Lost node n1 (NotReady)")]


def test_a_lost_pod_loses_its_jobs_finalizer_before_it_is_deleted() -> None:
    world = RecoveryWorld(
        a_workload(SwapRecord().with_loss(RecordedSwap("Replace", "NotReady", ("n1",), T - 3000, T))), *gang()
    )
    world.recoveries.act(T)
    [(verb, name, body)] = world.writer.take()
    assert (verb, name, body) == ("patch", "p0", {"metadata": {"uid": "uid-p0", "finalizers": None}})
    bare = a_pod("p0", "n1")
    bare["metadata"]["finalizers"] = []
    world.pods.upsert(bare)
    world.recoveries.act(T)
    assert world.writer.take() == [("delete", "p0", {"uid": "uid-p0"})]
    world.pods.upsert(a_pod("p0", "n1", due=T + 30_000))
    world.recoveries.act(T)
    assert world.writer.take() == [], "it was reported"


def test_pods_that_came_to_a_node_after_it_was_lost_stay() -> None:
    record = SwapRecord().with_loss(RecordedSwap("Replace", "NotReady", ("n1",), T - 3000, T))
    world = RecoveryWorld(a_workload(record), a_pod("new", "n1", created=T + 5000))
    world.recoveries.act(T + 6000)
    assert world.writer.take() == []


def test_a_pod_that_waits_for_a_place_on_the_lost_node_goes_as_well() -> None:
    """It has lost its gate and can't be given another place; a pod that came later has one on a node that is trusted again."""
    world = RecoveryWorld(a_workload(), *gang()[1:])
    for name, created in (("p0", T - 1_000), ("p3", T + 1_000)):
        waiting = a_pod(name, "", phase="Pending", ready=False, created=created)
        waiting["metadata"]["finalizers"] = []
        waiting["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n1"}
        world.pods.upsert(waiting)
    world.recoveries.heal(heal())
    world.written()
    world.recoveries.act(T)
    assert world.writer.take() == [("delete", "p0", {"uid": "uid-p0"})]


def test_a_gang_is_recovered_when_all_its_pods_are_ready_again() -> None:
    record = SwapRecord().with_loss(RecordedSwap("Replace", "NotReady", ("n1",), T - 3000, T, kept=("n2", "n3")))
    lost, *kept = gang()
    world = RecoveryWorld(a_workload(record), lost, *kept)
    world.pods.remove("ns/p0")
    world.pods.upsert(a_pod("q0", "", ready=False, phase="Pending", created=T + 1000))
    world.recoveries.act(T + 1200)
    assert world.writes.sent == [], "they exist, and are not ready"
    world.pods.upsert(a_pod("q0", "n4", created=T + 1000))
    world.recoveries.act(T + 2000)
    world.recoveries.act(T + 2100)
    assert len(world.writes.sent) == 1
    world.written()
    [swap] = world.record().log
    assert (swap.created, swap.running, swap.to, swap.kept) == (T + 1200, T + 2000, ("n4",), ())
    [(_, _, change)] = world.writes.changes
    status: Json = {}
    change(status, T)
    assert [(row["status"], row["reason"]) for row in status["conditions"]] == [("True", "Swapped")]
    sample = world.metrics.registry.get_sample_value
    assert sample("gangline_recovery_seconds_sum", {"cluster_queue": "cq"}) == 5.0
    assert sample("gangline_swap_seconds_sum", {"stage": "created"}) == 1.2
    world.pods.upsert(a_pod("q0", "n4", ready=False, created=T + 1000))
    world.recoveries.act(T + 9000)
    assert world.writes.sent == [], "that is another story"


def test_after_a_restart_only_pods_of_the_new_attempt_count() -> None:
    record = SwapRecord().with_loss(RecordedSwap("Restart", "NotReady", ("n1",), T - 3000, T))
    old = (a_pod("p1", "n2"), a_pod("p2", "n3"))
    world = RecoveryWorld(a_workload(record, pods=2), *old)
    world.recoveries.act(T + 100)
    assert world.writes.sent == []
    for pod in old:
        world.pods.remove(f"ns/{pod['metadata']['name']}")
        world.pods.upsert(a_pod(f"q{pod['metadata']['name']}", "n4", attempt=1, created=T))
    world.recoveries.act(T + 4000)
    world.written()
    assert world.record().current is None


def test_pods_of_the_attempt_before_hold_the_next_one_back() -> None:
    raw = a_workload(SwapRecord().with_loss(RecordedSwap("Restart", "NotReady", ("n1",), T - 3000, T)))
    world = RecoveryWorld(raw, a_pod("old", "n2", due=T))
    assert holds_back(raw, world.pods.of("ns/w"))
    world.pods.upsert(a_pod("old", "n2", workload=""))  # left behind
    assert not holds_back(raw, world.pods.of("ns/w"))
    assert not holds_back(a_workload(), [*RecoveryWorld(raw, a_pod("p")).pods.of("ns/w")])


def test_a_gang_that_is_being_evicted_is_left_alone() -> None:
    record = SwapRecord().with_loss(RecordedSwap("Replace", "NotReady", ("n1",), T - 3000, T))
    raw = a_workload(record)
    raw["status"]["conditions"].append({"type": "Evicted", "status": "True", "reason": "Preempted"})
    world = RecoveryWorld(raw, *gang())
    world.recoveries.act(T)
    assert world.writer.take() == []


def test_the_spare_fails_before_the_gang_has_recovered() -> None:
    record = SwapRecord().with_loss(RecordedSwap("Replace", "NotReady", ("n1",), T - 3000, T, kept=("n2", "n3")))
    world = RecoveryWorld(a_workload(record, pods=2), a_pod("q0", "n4", created=T + 1000), a_pod("p1", "n2"))
    world.recoveries.heal(model.Heal("ns/w", "uw", "Replace", ("n4",), "NotReady", "Lost node n4", T + 5000, T + 7000))
    world.written()
    world.recoveries.act(T + 7000)
    [(verb, name, _)] = world.writer.take()
    assert (verb, name) == ("patch", "q0"), "it goes, though it came after the first loss"


def test_a_node_that_fails_while_the_gang_starts_from_the_queue() -> None:
    record = SwapRecord().with_loss(RecordedSwap("Requeue", "NotReady", ("n1",), T - 9000, T - 8000))
    pods = (a_pod("q0", "n4", created=T - 4000), a_pod("q1", "n2", created=T - 4000))
    world = RecoveryWorld(a_workload(record, pods=2), *pods)
    world.recoveries.heal(heal("Replace", "n4"))
    world.written()
    world.recoveries.act(T)
    assert [name for _, name, _ in world.writer.take()] == ["q0"]
    assert world.record().log[0].how == "Requeue"


def evicting(world: RecoveryWorld) -> list[model.Evict]:
    evicted: list[model.Evict] = []
    world.messages.subscribe(EvictionWanted, lambda message: evicted.append(message.decision))
    return evicted


GIVE_UP = model.Evict("ns/w", "uw", "NodeFailures", "no room", avoid=("n1",))


def test_a_gang_is_evicted_only_when_the_nodes_that_failed_it_are_written_down() -> None:
    world = RecoveryWorld(a_workload(), *gang())
    evicted = evicting(world)
    world.recoveries.give_up(GIVE_UP)
    _, _, _, failed = world.writes.sent.pop()
    failed(RuntimeError("somebody else wrote it"))
    assert (evicted, world.failures) == ([], ["ns/w"]), "the engine thinks again"
    world.recoveries.give_up(GIVE_UP)
    world.written()
    assert evicted == [GIVE_UP]
    assert world.record().avoid == ("n1",)
    other = model.Evict("ns/w", "another", "NodeFailures", "no room", avoid=("n1",))
    world.recoveries.give_up(other)
    assert world.writes.sent == []


def test_an_eviction_that_was_written_down_and_not_done_is_done() -> None:
    """Whoever wrote it died, or somebody else wrote the Workload in between."""
    raw = a_workload()
    raw["status"]["conditions"][0]["lastTransitionTime"] = conditions.timestamp(T - 60_000)
    world = RecoveryWorld(raw, *gang())
    evicting(world)
    world.recoveries.give_up(GIVE_UP)
    world.written()
    written = world.mirror.get(kube.WORKLOADS, "ns/w")
    assert written is not None

    after = RecoveryWorld(written, *gang())
    evicted = evicting(after)
    after.writes.doubted = True
    after.recoveries.act(T + 1000)
    assert evicted == [], "what is on its way is waited for"
    after.writes.doubted = False
    after.recoveries.act(T + 2000)
    [evict] = evicted
    assert (evict.reason, evict.avoid, evict.uid) == ("NodeFailures", ("n1",), "uw")

    back = {**written, "metadata": {**written["metadata"], "resourceVersion": "back"}}
    back["status"] = {**written["status"], "conditions": [dict(row) for row in written["status"]["conditions"]]}
    back["status"]["conditions"][0]["lastTransitionTime"] = conditions.timestamp(T + 5000)
    later = RecoveryWorld(back, *gang())
    evicted = evicting(later)
    later.recoveries.act(T + 6000)
    assert evicted == [], "it has been admitted anew since"


@pytest.mark.parametrize("running", [None, T + 2000])
def test_the_condition_follows_the_record_whatever_came_in_between(running: int | None) -> None:
    record = SwapRecord().with_loss(RecordedSwap("Replace", "NotReady", ("n1",), T - 3000, T))
    if running is not None:
        record = record.with_current(
            RecordedSwap("Replace", "NotReady", ("n1",), T - 3000, T, T + 1000, running, ("n4",))
        )
    said = {"type": "Recovered", "status": "False" if running else "True", "reason": "Before", "message": ""}
    raw = a_workload(record)
    raw["status"]["conditions"] = [raw["status"]["conditions"][0], said]
    world = RecoveryWorld(raw)
    world.writes.waiting = True
    world.recoveries.act(T + 3000)
    assert world.writes.changes == [], "a write is on its way that may say it"
    world.writes.waiting = False
    world.recoveries.act(T + 3000)
    [(_, slot, change)] = world.writes.changes
    status: Json = {"conditions": [dict(said)]}
    change(status, T)
    assert slot == "recovery"
    assert status["conditions"][0]["status"] == ("True" if running else "False")
    assert "n1" in status["conditions"][0]["message"]


def test_an_eviction_for_failed_nodes_remembers_them_until_the_gang_runs() -> None:
    world = RecoveryWorld(a_workload(), *gang())
    world.recoveries.give_up(GIVE_UP)
    world.written()
    assert (world.record().avoid, world.record().attempt) == (("n1",), 0)
    world.pods.remove("ns/p0")
    world.pods.upsert(a_pod("q0", "n4", created=T + 1000))
    world.pods.upsert(a_pod("p1", "n2", created=T + 1000))
    world.pods.upsert(a_pod("p2", "n3", created=T + 1000))
    world.recoveries.act(T + 60_000)
    world.written()
    assert (world.record().avoid, world.record().log[0].how) == ((), "Requeue")


def test_a_decision_about_another_workload_of_that_name_is_not_carried_out() -> None:
    world = RecoveryWorld(a_workload(), *gang())
    world.recoveries.heal(heal(uid="another"))
    assert world.writes.sent == []


def test_the_engine_hears_of_a_record_that_could_not_be_written() -> None:
    world = RecoveryWorld(a_workload(), *gang())
    world.recoveries.heal(heal())
    _, _, _, failed = world.writes.sent.pop()
    failed(RuntimeError("no"))
    assert world.failures == ["ns/w"]


def test_a_decision_that_was_written_unheard_is_not_written_again() -> None:
    world = RecoveryWorld(a_workload(), *gang())
    world.recoveries.heal(heal("Restart"))
    world.written()
    world.recoveries.heal(heal("Restart"))
    assert world.writes.sent.pop()[1] is None
    assert world.record().attempt == 1


def test_a_gang_is_unreachable_while_a_node_under_it_is_not_heard_from() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uj", "controller": True}
    raw = a_workload()
    raw["metadata"]["ownerReferences"] = [owner]
    world = RecoveryWorld(raw, *gang())
    job = {"metadata": {"name": "j", "namespace": "ns", "uid": "uj", "resourceVersion": "1"}, "spec": {}, "status": {}}
    world.mirror.upsert(kube.JOBS, job)
    for name in ("n1", "n2", "n3"):
        world.mirror.upsert(kube.NODES, a_node(name))
    for ready in ("True", "Unknown", "True"):
        world.mirror.upsert(kube.NODES, a_node("n2", ready=ready))
        changed = world.mirror.changes.jobs.subscribe(worth=lambda ref: True)
        world.recoveries.act(T)
        assert world.recoveries.unreachable("ns/w") == (ready == "Unknown")
        if ready == "Unknown":
            assert changed.take() == {(kube.JOBS, "ns/j")}
    world.mirror.remove(kube.NODES, "n2")
    world.recoveries.act(T)
    assert world.recoveries.unreachable("ns/w")
    world.pods.upsert(a_pod("p1", "n2", due=T))
    assert not world.recoveries.unreachable("ns/w"), "that one is on its way out: it is missed anyhow"


def test_members_that_have_ended_for_good_are_not_waited_for() -> None:
    raw = a_workload(reclaimablePods=[{"name": "main", "count": 1}])
    assert wanted_pods(raw) == 2


def test_what_is_told_of_a_swap() -> None:
    swap = RecordedSwap("Replace", "NotReady", ("a", "b"), T, T + 500, T + 1500, T + 2000, ("c",))
    assert describe(swap) == (
        "Lost pods moved from a, b (NotReady) to c in 2.0 s: decided 0.5 s, created 1.0 s, running 0.5 s"
    )
    status: Json = {}
    run_changes.swapping(RecordedSwap("Requeue", "NotReady", ("a",), T, T), "gone")(status, T)
    assert status["conditions"][0]["reason"] == "Queued"


def wishing(what: str) -> RecoveryWorld:
    raw = a_workload()
    raw["metadata"]["annotations"] = {names.NODE_LOSS: what}
    return RecoveryWorld(raw, *gang())


def test_a_job_may_want_to_be_queued_again_rather_than_healed() -> None:
    world = wishing("Requeue")
    evicted = evicting(world)
    world.recoveries.heal(heal("Restart"))
    world.written()
    assert [(each.reason, each.avoid) for each in evicted] == [("NodeFailures", ("n1",))]
    assert (world.record().log[0].how, world.record().avoid, world.record().attempt) == ("Requeue", ("n1",), 0)


def test_or_to_fail_where_its_kind_can() -> None:
    world = wishing("Fail")
    job = {"metadata": {"name": "g", "namespace": "ns", "uid": "ug", "resourceVersion": "1"}, "spec": {}, "status": {}}
    world.mirror.upsert(kube.GPU_JOBS, job)
    raw = dict(world.mirror.objects[kube.WORKLOADS]["ns/w"])
    owner = {"apiVersion": "gangline.io/v1alpha1", "kind": "GPUJob", "name": "g", "uid": "ug", "controller": True}
    raw["metadata"] = {**raw["metadata"], "resourceVersion": "9", "ownerReferences": [owner]}
    world.mirror.upsert(kube.WORKLOADS, raw)
    world.recoveries.heal(heal("Restart"))
    [(name, body, _, _)] = world.writes.sent
    assert name == "g"
    [row] = body["status"]["conditions"]
    assert (row["type"], row["reason"]) == ("FailureTarget", "NodeFailure")


@pytest.mark.parametrize(("permitted", "shortened"), [(None, []), (2, ["p1"])])
def test_a_gang_that_starts_again_waits_no_longer_than_its_policy_permits(
    permitted: int | None, shortened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    swap = RecordedSwap("Restart", "Silent", ("n1",), T - 3000, T)
    pods = (
        a_pod("p0", "n1"),  # it is not being deleted yet: its Job does that
        a_pod("p1", "n2", due=T + 30_000),
        a_pod("p2", "n3", due=T + 3_000),
        a_pod("ended", "n3", due=T + 30_000, phase="Failed"),
        a_pod("new", "n3", due=T + 30_000, attempt=1),  # the user deleted it
    )
    world = RecoveryWorld(a_workload(NOTHING.with_loss(swap)), *pods)
    policy = model.Recovery(restart_grace_seconds=permitted)
    monkeypatch.setattr(Mirror, "recovery_for", lambda mirror, workload: policy)
    world.recoveries.act(T)
    found = world.writer.take()
    assert [name for _, name, _ in found] == shortened
    assert all(verb == "delete" and body == {"uid": f"uid-{name}", "grace_seconds": 2} for verb, name, body in found)


# --- pods that can't be bound -----------------------------------------------------------------------------------------


def sent(name: str, node: str) -> PodObject:
    """A pod that may be bound to this node alone, and is not."""
    pod = a_pod(name, "", ready=False, phase="Pending")
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    pod["spec"]["affinity"] = {"nodeAffinity": required}
    return pod


def test_only_the_pods_go_that_can_not_be_bound() -> None:
    world = RecoveryWorld(a_workload(), a_pod("p0", "n1"), sent("p1", "n1"), a_pod("p2", "n3"))
    world.recoveries.heal(
        model.Heal("ns/w", "uw", "Replace", ("n1",), "Unschedulable", "why", T - 20_000, T, bound_stay=True)
    )
    world.written()
    assert ("PodsUnschedulable", "why") in world.recorder.said
    world.recoveries.act(T)
    assert {name for _, name, _ in world.writer.take()} == {"p1"}
    [swap] = world.record().log
    assert swap.refusing == ("n1",)
    assert swap_rules.missing(swap) == "Pods can't be bound to n1 (Unschedulable)"


def test_a_lost_node_takes_all_pods_that_were_on_it_or_sent_to_it() -> None:
    world = RecoveryWorld(a_workload(), a_pod("p0", "n1"), sent("p1", "n1"), sent("p2", "n3"))
    world.recoveries.heal(heal())
    world.written()
    world.recoveries.act(T)
    assert {name for _, name, _ in world.writer.take()} == {"p0", "p1"}


def test_a_node_that_is_lost_after_it_refused_pods_is_lost_to_all() -> None:
    refused = RecordedSwap("Replace", "Unschedulable", ("n1", "n2"), T - 9000, T - 8000, refusing=("n1", "n2"))
    record = SwapRecord().with_loss(refused).with_loss(RecordedSwap("Replace", "NotReady", ("n1",), T - 5000, T))
    assert record.current is not None
    assert (record.current.lost, record.current.refusing) == (("n1", "n2"), ("n2",))
    assert swap_record.read({names.RECOVERY: swap_record.write(record)}) == record
