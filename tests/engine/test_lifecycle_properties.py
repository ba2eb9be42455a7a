"""What must hold whatever is said of gangs and queues: random histories of checks, stops, limits, lost writes, restarts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from tests.builders.engine import cluster_queue, cohort, gang
from tests.engine.twins import Twins
from tests.examples import examples

from gangline.engine.model import (
    FIXES,
    AdmissionCheck,
    Admit,
    CheckRef,
    CheckState,
    ClusterQueue,
    CompleteAdmission,
    Decision,
    Evict,
    FairSharing,
    Gone,
    LocalQueue,
    PodsReadyPolicy,
    Preempt,
    PreemptionPolicy,
    Quota,
    Requeue,
    Settings,
    VictimPolicy,
    Warn,
    Workload,
)
from gangline.engine.state.lifecycle import required_checks

RECLAIM = PreemptionPolicy("LowerPriority", "Any")
BORROW = PreemptionPolicy("LowerOrNewerEqualPriority", "LowerPriority", "LowerPriority", 1)
TWICE = VictimPolicy(max_preemptions=2)
CHECKS = ("budget", "license")
FOREST: tuple[ClusterQueue, ...] = (
    cluster_queue("q0", Quota(6, borrowing_limit=4), "left", preemption=RECLAIM, victims=TWICE),
    cluster_queue(
        "q1", Quota(4, lending_limit=2), "left", preemption=BORROW, victims=TWICE, checks=(CheckRef("budget"),)
    ),
    cluster_queue(
        "q2", 5, "right", strategy="StrictFIFO", preemption=BORROW, victims=TWICE, checks=tuple(map(CheckRef, CHECKS))
    ),
    cluster_queue("q3", 4, preemption=PreemptionPolicy("LowerPriority"), victims=TWICE),
)
QUEUES = tuple(queue.name for queue in FOREST)
COHORTS = (cohort("top", 2), cohort("left", 0, "top"), cohort("right", 3, "top"))
STOPS = st.sampled_from(("None", "Hold", "HoldAndDrain"))
#: a day, after which nothing waits for time alone
LONG = 86_400


class Lives(Twins):
    """Jobs live through everything that keeps them from running; the operator is killed now and then."""

    fair = False
    block = False
    fixes: frozenset[str] = frozenset()

    @initialize()
    def start(self) -> None:
        ready = PodsReadyPolicy(
            timeout_seconds=60, recovery_timeout_seconds=30, block_admission=self.block, backoff_base_seconds=10
        )
        configured = Settings(
            fair_sharing=FairSharing() if self.fair else None, pods_ready=ready, fixes={"*": self.fixes}
        )
        items = (*map(AdmissionCheck, CHECKS), *COHORTS, *FOREST)
        self.live(*items, settings=configured)
        self.queues = {queue.name: queue for queue in FOREST}
        self.stopped = dict.fromkeys(QUEUES, "None")

    def somebody(self, data: st.DataObject, those: Sequence[Workload]) -> Workload:
        return self.world.workloads[data.draw(st.sampled_from(sorted(each.key for each in those)))]

    @property
    def holders(self) -> list[Workload]:
        return [each for each in self.all if each.admission is not None]

    @property
    def asking(self) -> list[Workload]:
        return [each for each in self.holders if each.checks and not each.evicted]

    @property
    def running(self) -> list[Workload]:
        return [each for each in self.holders if each.admitted and not each.evicted]

    # --- what users and administrators do -----------------------------------------------------------------------------

    @rule(queue=st.sampled_from(QUEUES), gpus=st.integers(1, 4), pods=st.integers(1, 3), priority=st.integers(0, 2))
    def submit(self, queue: str, gpus: int, pods: int, priority: int) -> None:
        self.count += 1
        pods = pods if gpus * pods <= 4 else 1
        self.both("put", gang(f"w{self.count}", gpus, queue, pods, priority=priority))

    @precondition(lambda self: bool(self.all))
    @rule(data=st.data(), active=st.booleans())
    def set_active(self, data: st.DataObject, active: bool) -> None:
        self.both("change", self.somebody(data, self.all).name, active=active)

    @precondition(lambda self: bool(self.all))
    @rule(data=st.data(), priority=st.integers(0, 2))
    def set_priority(self, data: st.DataObject, priority: int) -> None:
        self.both("change", self.somebody(data, self.all).name, priority=priority)

    @precondition(lambda self: bool(self.all))
    @rule(data=st.data(), queue=st.sampled_from(QUEUES))
    def move(self, data: st.DataObject, queue: str) -> None:
        workload = self.somebody(data, self.all)
        if workload.admission is None:
            self.both("change", workload.name, queue=queue)

    @precondition(lambda self: bool(self.all))
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.both("delete", self.somebody(data, self.all).name)

    @rule(queue=st.sampled_from(QUEUES), policy=STOPS)
    def stop_queue(self, queue: str, policy: str) -> None:
        self.queues[queue] = replace(self.queues[queue], stop_policy=policy)
        self.both("put", self.queues[queue])

    @rule(queue=st.sampled_from(QUEUES), policy=STOPS)
    def stop_local_queue(self, queue: str, policy: str) -> None:
        self.stopped[queue] = policy
        self.both("put", LocalQueue("team", queue, queue, stop_policy=policy))

    @rule(queue=st.sampled_from(QUEUES))
    def delete_queue(self, queue: str) -> None:
        for world in (self.world, self.twin):
            world.engine.observe(Gone(ClusterQueue, queue))

    @rule(queue=st.sampled_from(QUEUES))
    def restore_queue(self, queue: str) -> None:
        self.both("put", self.queues[queue])

    @rule(queue=st.sampled_from(QUEUES), checks=st.sets(st.sampled_from(CHECKS)))
    def change_checks(self, queue: str, checks: set[str]) -> None:
        self.queues[queue] = replace(self.queues[queue], checks=tuple(map(CheckRef, sorted(checks))))
        self.both("put", self.queues[queue])

    @rule(check=st.sampled_from(CHECKS), active=st.booleans())
    def set_check(self, check: str, active: bool) -> None:
        self.both("put", AdmissionCheck(check, active=active))

    # --- what others in the cluster do --------------------------------------------------------------------------------

    @precondition(lambda self: bool(self.asking))
    @rule(
        data=st.data(),
        state=st.sampled_from(("Ready", "Ready", "Ready", "Retry", "Rejected")),
        pause=st.none() | st.integers(0, 50),
    )
    def answer(self, data: st.DataObject, state: str, pause: int | None) -> None:
        workload = self.somebody(data, self.asking)
        name = data.draw(st.sampled_from([check.name for check in workload.checks]))
        self.tell_check(workload, name, CheckState(name, state, at=self.world.now, requeue_after_seconds=pause))

    def tell_check(self, workload: Workload, name: str, state: CheckState) -> None:
        checks = tuple(state if check.name == name else check for check in workload.checks)
        self.both("change", workload.name, checks=checks)

    @precondition(lambda self: bool(self.running))
    @rule(data=st.data(), ready=st.booleans())
    def pods_ready(self, data: st.DataObject, ready: bool) -> None:
        workload = self.somebody(data, self.running)
        fields = {
            "pods_ready": ready,
            "pods_ready_at": self.world.now,
            "pods_were_ready": workload.pods_ready and not ready,
        }
        self.both("change", workload.name, **fields)

    @precondition(lambda self: bool(self.running))
    @rule(data=st.data())
    def a_pod_finishes(self, data: st.DataObject) -> None:
        workload = self.somebody(data, self.running)
        done = workload.reclaimable.get("main", 0) + 1
        if done < workload.pod_sets[0].count:
            self.both("change", workload.name, reclaimable={"main": done})

    @precondition(lambda self: bool(self.running))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.done(self.somebody(data, self.running).name)

    @rule(seconds=st.integers(1, 100))
    def time_passes(self, seconds: int) -> None:
        self.pass_time(seconds)

    # --- what must hold -----------------------------------------------------------------------------------------------

    def check(self, decisions: Sequence[Decision]) -> None:
        back = [each.workload for each in decisions if isinstance(each, Requeue)]
        for decision in decisions:
            workload = None if isinstance(decision, Warn) else self.world.workloads[decision.workload]
            match decision:
                case Admit(admission=admission):
                    assert workload is not None and workload.admission is None and workload.active, decision
                    assert workload.requeued is not False or workload.key in back, "it backs off"
                    assert self.stopped[workload.queue] == "None" and admission.cluster_queue == workload.queue
                    config = self.world.engine._store.cluster_queues[workload.queue]
                    assert config.stop_policy == "None"
                    counts = {each.name: each.count for each in admission.pod_sets}
                    assert counts == {
                        each.name: each.count - workload.reclaimable.get(each.name, 0) for each in workload.pod_sets
                    }
                    assert decision.admitted == (not required_checks(config, admission))
                case CompleteAdmission():
                    assert workload is not None and workload.admission is not None and not workload.evicted
                    config = self.world.engine._store.cluster_queues.get(workload.admission.cluster_queue)
                    ready = {check.name for check in workload.checks if check.state == "Ready"}
                    if config is not None:  # a queue that was deleted under a workload requires nothing more of it
                        assert ready.issuperset(required_checks(config, workload.admission)), decision
                case Evict() | Preempt():
                    assert workload is not None
                    admitted_just_now = workload.key in {d.workload for d in decisions if isinstance(d, Admit)}
                    assert admitted_just_now or not workload.evicted, "it is on its way out"
                    assert admitted_just_now or workload.admission is not None
                case _:
                    pass

    def teardown(self) -> None:
        """Once nobody stops it and every check is answered, each gang finishes exactly once."""
        if not hasattr(self, "world"):
            return
        for check in CHECKS:
            self.both("put", AdmissionCheck(check))
        for queue in FOREST:
            self.both("put", queue, LocalQueue("team", queue.name, queue.name))
            self.stopped[queue.name] = "None"
        for _ in range(4 * len(self.all) + 8):
            for workload in self.all:
                if not workload.active:
                    self.both("change", workload.name, active=True)
            self.pass_time(LONG)
            self.carry_out(self.decisions())
            for workload in self.asking:
                for check in self.world.workloads[workload.key].checks:
                    self.tell_check(self.world.workloads[workload.key], check.name, replace(check, state="Ready"))
            self.carry_out(self.decisions())
            self.both("complete_evictions")
            for workload in self.running:
                self.done(workload.name)
            if not self.all:
                return
        raise AssertionError(f"never came to run: {[each.key for each in self.all]}")


class FairLives(Lives):
    fair = True


class FixedLives(Lives):
    fixes = FIXES


class OneAtATime(Lives):
    """Nobody is admitted before those who were have all their pods."""

    block = True


TestLives = Lives.TestCase
TestFairLives = FairLives.TestCase
TestFixedLives = FixedLives.TestCase
TestOneAtATime = OneAtATime.TestCase
for case in (TestLives, TestFairLives, TestFixedLives, TestOneAtATime):
    case.settings = examples(20, stateful_step_count=40)
del case
