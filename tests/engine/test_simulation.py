"""The forward simulation by itself: every decision is carried out, and time goes on as planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, cast, get_args

import pytest
from tests.builders.engine import GPU, START, cluster_queue, gang

from gangline.engine import Engine, SimulatedRun, Simulation
from gangline.engine.model import (
    Admission,
    Admit,
    AskChecks,
    CompleteAdmission,
    Decision,
    Evict,
    Explanation,
    Flavor,
    Heal,
    LocalQueue,
    Millis,
    PodSetAssignment,
    Preempt,
    Put,
    ReportPending,
    Requeue,
    Settings,
    Swap,
    Warn,
    Withdraw,
    Workload,
)

MINUTE = 60_000
KEY, UID = "team/a", "uid-a"


class LoggedRuns(Simulation):
    """Runs as long as `lengths` says; what is recorded is kept as text."""

    def __init__(self, lengths: dict[str, Millis], engine: Engine | None = None) -> None:
        super().__init__(engine or Engine(Settings(pods_ready=None)), START)
        self.lengths = lengths
        self.log: list[str] = []
        for item in (Flavor("a100"), cluster_queue("q", 1), LocalQueue("team", "q", "q")):
            self.observe(Put(item))

    def length(self, workload: Workload, run: SimulatedRun) -> Millis | None:
        return self.lengths.get(workload.name)

    def note(self, what: str, workload: Workload) -> None:
        self.log.append(f"{(self.now - START) / MINUTE:g} {workload.name} {what}")

    def started(self, workload: Workload) -> None:
        self.note("starts", workload)

    def stopped(self, workload: Workload, run: SimulatedRun | None, reason: str) -> None:
        self.note(f"is stopped: {reason}", workload)

    def ended(self, workload: Workload, run: SimulatedRun) -> None:
        self.note("ends", workload)

    def settled(self) -> None:
        self.log.append(f"{(self.now - START) / MINUTE:g} {len(self.runs)} run, {self.waiting} wait")


ADMISSION = Admission("q", (PodSetAssignment("main", 1, {GPU: "a100"}, {GPU: 1}),))
OTHER = Admission("q", (PodSetAssignment("main", 1, {GPU: "h100"}, {GPU: 1}),))


def holding(workload: Workload, *, admitted: bool = True) -> Workload:
    return replace(
        workload,
        admission=ADMISSION,
        reserved_at=START,
        admitted=admitted,
        admitted_at=START if admitted else 0,
        backfilled=True,
        reclaimable={"main": 1},
        overrun="Overdue",
    )


WAITS = gang("a", max_execution_seconds=3600)
RESERVED, RUNS = holding(WAITS, admitted=False), holding(WAITS)
#: for each kind of decision: the decision, the workload before it, its fields after it, whether it runs then, and the record
CARRIED_OUT: dict[type, tuple[Decision, Workload, dict[str, object], bool, list[str]]] = {
    Admit: (
        Admit(KEY, UID, ADMISSION, True, START, backfilled=True),
        replace(WAITS, evicted="Preempted", preempted="InClusterQueue", requeued=True),
        {"admission": ADMISSION, "admitted": True, "pods_ready": True, "evicted": "", "backfilled": True},
        True,
        ["5 a starts"],
    ),
    AskChecks: (AskChecks(KEY, UID, ("budget",)), WAITS, {"checks": ("budget", "Ready")}, False, []),
    CompleteAdmission: (
        CompleteAdmission(KEY, UID),
        RESERVED,
        {"admitted": True, "admitted_at": START + 5 * MINUTE, "pods_ready": True},
        True,
        ["5 a starts"],
    ),
    Preempt: (
        Preempt(KEY, UID, "InClusterQueue", "", "team/b", "uid-b"),
        RUNS,
        {
            "admission": None,
            "admitted": False,
            "evicted": "Preempted",
            "preempted": "InClusterQueue",
            "preemptions": 1,
            "requeued": True,
            "past_execution_seconds": 300,
            "backfilled": False,
            "reclaimable": {},
            "overrun": "",
        },
        False,
        ["5 a is stopped: InClusterQueue"],
    ),
    Evict: (
        Evict(KEY, UID, "AdmissionCheck", "", requeue_at=START + 9 * MINUTE, requeue_count=2),
        RUNS,
        {
            "admission": None,
            "evicted": "AdmissionCheck",
            "preemptions": 0,
            "requeued": False,
            "requeue_at": START + 9 * MINUTE,
            "requeue_count": 2,
            "active": True,
        },
        False,
        ["5 a is stopped: AdmissionCheck"],
    ),
    Withdraw: (Withdraw(KEY, UID, "ClusterQueue q"), RESERVED, {"admission": None, "reserved_at": 0}, False, []),
    Requeue: (
        Requeue(KEY, UID, "BackoffFinished"),
        replace(WAITS, requeued=False, requeue_at=START),
        {"requeued": True, "requeue_at": None},
        False,
        [],
    ),
    ReportPending: (ReportPending(KEY, UID, Explanation("WaitingForQuota", "")), WAITS, {"admission": None}, False, []),
    Swap: (Swap(KEY, UID, OTHER), RUNS, {"admission": OTHER, "admitted": True}, True, []),
    Heal: (Heal(KEY, UID, "Replace", ("n1",), "NotReady", "", 0, 0), RUNS, {"admission": ADMISSION}, True, []),
    Warn: (Warn("Workload", KEY, "RanPastForecast", ""), RUNS, {"admission": ADMISSION}, True, []),
}


def carry_out(simulation: Simulation) -> Callable[[Decision], None]:
    return simulation._carry_out  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("kind", get_args(Decision))
def test_every_decision_that_the_engine_can_make_is_carried_out(kind: type) -> None:
    decision, before, expected, runs, log = CARRIED_OUT[kind]
    simulation = LoggedRuns({"a": 10 * MINUTE})
    simulation.put(before)
    if before.admitted:
        simulation.begin(KEY, START)
    simulation.now = START + 5 * MINUTE
    carry_out(simulation)(decision)
    after = simulation.workloads[KEY]
    for name, value in expected.items():
        found = getattr(after, name)
        if name == "checks":
            found = next((check.name, check.state) for check in after.checks)
        assert found == value, name
    assert (KEY in simulation.runs) is runs
    assert simulation.log == log


def test_a_deactivated_workload_is_over() -> None:
    simulation = LoggedRuns({"a": 10 * MINUTE})
    simulation.put(RUNS)
    simulation.begin(KEY, START)
    simulation.now = START + 5 * MINUTE
    carry_out(simulation)(Evict(KEY, UID, "Deactivated", "", deactivate=True))
    assert not simulation.workloads and not simulation.runs
    assert not any(map(_is_workload, simulation.engine.facts())), "the engine forgets it"
    simulation.play()
    assert simulation.log == ["5 a is stopped: Deactivated", "5 0 run, 0 wait"]


def _is_workload(fact: object) -> bool:
    return isinstance(fact, Put) and isinstance(fact.item, Workload)


def test_a_decision_of_a_kind_that_nobody_heeds_is_an_error() -> None:
    class Another:
        workload = KEY

    simulation = LoggedRuns({})
    simulation.put(WAITS)
    with pytest.raises(AssertionError):
        carry_out(simulation)(cast(Decision, Another()))


def test_runs_end_after_their_length_and_others_start() -> None:
    simulation = LoggedRuns({"a": 10 * MINUTE, "b": 3 * MINUTE})
    simulation.put(gang("a", created=START))
    simulation.put(gang("b", created=START + 1))
    simulation.play()
    assert simulation.log == [
        "0 a starts",
        "0 1 run, 1 wait",
        "10 a ends",
        "10 b starts",
        "10 1 run, 0 wait",
        "13 b ends",
        "13 0 run, 0 wait",
    ]


def test_a_run_without_a_known_end_goes_on_until_it_is_planned() -> None:
    simulation = LoggedRuns({})
    simulation.put(gang("a", created=START))
    simulation.play()
    assert simulation.log == ["0 a starts", "0 1 run, 0 wait"]
    simulation.lengths["a"] = 4 * MINUTE
    simulation.plan_end(KEY)
    simulation.lengths["a"] = 2 * MINUTE
    simulation.plan_end(KEY)
    simulation.play()
    assert simulation.log[3:] == ["2 a ends", "2 0 run, 0 wait"], "the first planned end is void"


def test_a_simulation_whose_engine_does_not_come_to_rest_breaks_off() -> None:
    class Restless(Engine):
        def next_wakeup(self, now: Millis) -> Millis | None:
            return now

    class Counted(LoggedRuns):
        MOST_ROUNDS: ClassVar[int] = 7

        def out_of_rounds(self) -> None:
            self.log.append("broken off")

    simulation = Counted({"a": MINUTE}, Restless(Settings(pods_ready=None)))
    simulation.put(gang("a", created=START))
    simulation.play()
    assert simulation.log == ["0 a starts", "broken off"]
