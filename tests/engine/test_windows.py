"""Windows of Reservations: nodes are kept from one instant to another, for somebody or for nobody."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.engine import GPU, START, EngineWorld, cluster_queue, gang, of
from tests.engine.node_world import FLAVOR, TPU, NodeWorld, node, plain, queue

from gangline.engine import Engine, SimulatedRun, Simulation, outlook
from gangline.engine.model import (
    Admission,
    Admit,
    Backfill,
    BoundPod,
    Evict,
    Flavor,
    Gone,
    LocalQueue,
    Millis,
    Node,
    Ordering,
    PodSet,
    Put,
    ReservedWindow,
    RuntimeForecast,
    SaveTime,
    Settings,
    Submitter,
    Toleration,
    Topology,
    TopologyRequest,
    Warn,
    Workload,
    WorkloadPods,
)
from gangline.engine.nodes.windows import Windows

MINUTE, HOUR = 60_000, 3_600_000
BEGIN, END = START + 3 * HOUR, START + 5 * HOUR


def window(*nodes: str, begin: Millis = BEGIN, end: Millis = END, **fields: object) -> ReservedWindow:
    return ReservedWindow(f"weekly/{begin}", "weekly", begin, end, frozenset(nodes), **fields)  # pyright: ignore


def limited(name: str, pods: int, hours: float, **fields: object) -> Workload:
    return replace(plain(name, pods), max_execution_seconds=round(hours * 3600), **fields)  # pyright: ignore


def why(world: NodeWorld, name: str) -> str:
    found = world.engine.explain(f"team/{name}")
    assert found is not None
    return found.message


def on(world: NodeWorld, name: str) -> set[str]:
    places = world.engine.places_of(f"team/{name}")
    return {host for each in (places or {}).values() for host in each}


def at(world: NodeWorld, moment: Millis) -> NodeWorld:
    world.now = moment - 1000  # `decide` adds a second
    return world


# --- before the window ------------------------------------------------------------------------------------------------


def test_only_a_workload_that_ends_in_time_starts_on_nodes_that_will_be_reserved() -> None:
    world = NodeWorld(node("n0"), node("n1"), queue(100), window("n1"))
    world.put(plain("w1", 2), limited("w2", 2, 4), limited("w3", 2, 2))
    assert of(world.decide(), Admit) == ["w3"]
    message = (
        ". Node n1 is reserved from 2026-01-01 03:00 UTC until 2026-01-01 05:00 UTC (maintenance 'weekly'); the workload"
        " may start there before only with a maximum execution time, or a forecast, that ends by then"
    )
    assert message in why(world, "w1")


def test_nodes_outside_of_the_window_are_used_first_come_first_served() -> None:
    world = NodeWorld(node("n0"), node("n1"), queue(100), window("n0"))
    world.put(plain("w1", 1), limited("w2", 1, 1))
    assert sorted(of(world.decide(), Admit)) == ["w1", "w2"]
    assert on(world, "w1") == {"n1"}
    assert on(world, "w2") == {"n0"}


def test_who_ends_in_time_takes_the_nodes_that_others_may_not_use() -> None:
    world = NodeWorld(node("n0"), node("n1"), queue(100), window("n1"))
    world.put(limited("w1", 1, 1), plain("w2", 1))
    assert sorted(of(world.decide(), Admit)) == ["w1", "w2"]
    assert on(world, "w1") == {"n1"}


def test_a_forecast_at_the_quantile_of_the_policy_counts_as_a_limit_does() -> None:
    world = NodeWorld(node("n0"), queue(100, backfill=Backfill(candidate=0.8)), window("n0"))
    world.put(plain("w1", 1))
    assert of(world.decide(), Admit) == []
    world.engine.observe(Put(RuntimeForecast("team/w1", ((0.5, HOUR), (0.8, 4 * HOUR)), "Model", 12)))
    assert of(world.decide(), Admit) == []
    world.engine.observe(Put(RuntimeForecast("team/w1", ((0.5, HOUR), (0.8, 2 * HOUR)), "Model", 12)))
    assert of(world.decide(), Admit) == ["w1"]


def test_a_forecast_of_a_waiting_workload_changes_its_turn_while_a_window_is_ahead_too() -> None:
    first = limited("w1", 1, 1)
    kept = window("n1", begin=START + 30 * 24 * HOUR, end=START + 31 * 24 * HOUR)
    world = NodeWorld(node("n0"), queue(100, ordering=Ordering("ShortestFirst")), kept, first)
    assert of(world.decide(), Admit) == ["w1"]
    world.put(plain("w2", 1), plain("w3", 1))
    assert of(world.decide(), Admit) == []
    for name, hours in (("w2", 20), ("w3", 2)):
        world.engine.observe(Put(RuntimeForecast(f"team/{name}", ((0.5, hours * HOUR),), "Model", 12)))
    world.decide()
    world.finish("w1")
    assert of(world.decide(), Admit) == ["w3"]


def test_time_takes_the_nodes_away_from_a_workload_that_waits() -> None:
    world = NodeWorld(node("n0"), queue(100), window("n0"), limited("w1", 1, 2), limited("w2", 1, 2))
    assert of(world.decide(), Admit) == ["w1"]
    at(world, START + 90 * MINUTE)
    world.finish("w1")
    assert of(world.decide(), Admit) == []  # w2 would have fitted half an hour before
    assert of(at(world, END).decide(), Admit) == ["w2"]


def test_a_toleration_of_everything_does_not_open_a_window() -> None:
    everything = (Toleration(operator="Exists"),)
    world = NodeWorld(node("n0"), queue(100), window("n0"))
    free = plain("w1", 1)
    world.put(replace(free, pod_sets=(replace(free.pod_sets[0], tolerations=everything),)))
    assert of(world.decide(), Admit) == []


def test_a_workload_with_a_limit_is_not_kept_behind_one_of_its_shape_without() -> None:
    world = NodeWorld(node("n0"), queue(100), window("n0"), *(plain(f"w{number}", 1) for number in range(1, 4)))
    assert of(world.decide(), Admit) == []
    world.put(limited("w4", 1, 1))
    assert of(world.decide(), Admit) == ["w4"]


def test_a_workload_that_gets_a_limit_while_it_waits_is_tried_again() -> None:
    world = NodeWorld(node("n0"), queue(100), window("n0"), plain("w1", 1))
    assert of(world.decide(), Admit) == []
    world.change("w1", max_execution_seconds=3600)
    assert of(world.decide(), Admit) == ["w1"]


def test_who_saves_checkpoints_starts_though_it_is_stopped_later_where_the_reservation_permits_it() -> None:
    kept = window("n0", notice=30 * MINUTE, shortest_run=HOUR)
    world = NodeWorld(node("n0"), queue(100), kept, plain("w1", 1))
    assert of(world.decide(), Admit) == []
    assert why(world, "w1").endswith("that ends by then, or with checkpoints, if it can run for 1h until it is stopped")
    world.change("w1", checkpoint_seconds=3.5 * 3600)
    assert of(world.decide(), Admit) == []  # it would write none until it is stopped
    world.change("w1", checkpoint_seconds=1800)
    assert of(world.decide(), Admit) == ["w1"]
    world.bind()
    assert [each.about for each in at(world, BEGIN - 30 * MINUTE).decide() if isinstance(each, Warn)] == ["team/w1"]
    assert [each.reason for each in at(world, BEGIN).decide() if isinstance(each, Evict)] == ["Reservation"]


def test_who_saves_checkpoints_starts_no_later_than_it_has_to_run_before_the_window() -> None:
    saver = replace(plain("w1", 1), checkpoint_seconds=60.0)
    for start, starts in ((BEGIN - HOUR, ["w1"]), (BEGIN - HOUR + 1000, [])):
        world = at(NodeWorld(node("n0"), queue(100), window("n0", shortest_run=HOUR)), start)
        world.put(saver)
        assert of(world.decide(), Admit) == starts
    world = NodeWorld(node("n0"), queue(100), window("n0"), saver)
    assert of(world.decide(), Admit) == []


def test_nodes_are_selected_by_label_and_those_that_come_later_too() -> None:
    world = NodeWorld(node("n0", "p0"), queue(100), window(node_labels={"pool": "x"}), plain("w1", 1))
    world.put(node("n1", "p0", labels={"pool": "x"}))
    assert of(world.decide(), Admit) == ["w1"]
    world.put(plain("w2", 1))
    assert of(world.decide(), Admit) == []
    world.put(node("n1", "p0", labels={"pool": "y"}))
    assert of(world.decide(), Admit) == ["w2"]


# --- in the window ----------------------------------------------------------------------------------------------------


def test_what_still_runs_is_told_in_advance_and_stopped_when_the_window_begins() -> None:
    world = NodeWorld(node("n0"), node("n1"), queue(100), plain("w1", 2))
    world.decide()
    world.bind()
    world.put(window("n1", notice=30 * MINUTE))
    world.decide()
    assert world.engine.next_wakeup(world.now) == BEGIN - 30 * MINUTE
    decisions = at(world, BEGIN - 30 * MINUTE).decide()
    assert [(each.reason, each.about) for each in decisions if isinstance(each, Warn)] == [("SaveBy", "team/w1")]
    assert world.warnings[0].message.startswith("Save by 2026-01-01 03:00 UTC, when the workload is stopped. ")
    assert world.engine.next_wakeup(world.now) == BEGIN
    assert not [each for each in at(world, BEGIN - 10 * MINUTE).decide() if isinstance(each, Warn)]
    stopped = [each for each in at(world, BEGIN).decide() if isinstance(each, Evict)]
    assert [(each.workload, each.reason, each.deactivate) for each in stopped] == [("team/w1", "Reservation", False)]
    assert "Node n1 is" not in stopped[0].message
    assert "node n1 is reserved from 2026-01-01 03:00 UTC" in stopped[0].message


def test_a_workload_whose_pods_take_long_to_end_is_stopped_as_much_earlier_but_not_before_the_notice() -> None:
    world = NodeWorld(node("n0"), queue(100), plain("w1", 1))
    world.decide()
    world.bind()
    world.put(window("n0", notice=30 * MINUTE, lead=MINUTE))
    world.engine.observe(Put(SaveTime("team/w1", 11 * MINUTE)))
    said = [each for each in at(world, BEGIN - 30 * MINUTE).decide() if isinstance(each, Warn)]
    assert said[0].message.startswith("Save by 2026-01-01 02:50 UTC, when the workload is stopped. ")
    assert world.engine.next_wakeup(world.now) == BEGIN - 10 * MINUTE
    assert of(at(world, BEGIN - 10 * MINUTE - 1).decide(), Evict) == []
    assert of(at(world, BEGIN - 10 * MINUTE).decide(), Evict) == ["w1"]


def test_no_stop_is_earlier_than_the_notice_or_later_than_the_reservation_says() -> None:
    world = NodeWorld(node("n0"), queue(100), plain("w1", 1))
    world.decide()
    mine = window("n0", notice=30 * MINUTE, lead=5 * MINUTE)
    world.put(mine)
    for took, due in ((60, BEGIN - 30 * MINUTE), (3, BEGIN), (5, BEGIN), (7, BEGIN - 2 * MINUTE)):
        world.engine.observe(Put(SaveTime("team/w1", took * MINUTE)))
        assert world.engine.leaves_at(mine, "team/w1") == due


def test_who_starts_by_a_forecast_ends_before_it_would_be_stopped_and_by_a_limit_before_the_window() -> None:
    world = NodeWorld(node("n0"), queue(100, backfill=Backfill(candidate=0.9)), window("n0", notice=HOUR))
    world.put(plain("w1", 1))
    world.engine.observe(Put(SaveTime("team/w1", HOUR)))
    left = BEGIN - world.now
    world.engine.observe(Put(RuntimeForecast("team/w1", ((0.5, left // 2), (0.9, left - HOUR // 2)), "Model", 12)))
    assert of(world.decide(), Admit) == []
    world.change("w1", max_execution_seconds=(left - HOUR // 2) // 1000)
    assert of(world.decide(), Admit) == ["w1"]
    assert of(at(world, BEGIN - HOUR // 2 - 2000).decide(), Evict) == []


def test_a_workload_on_other_nodes_goes_on_and_one_that_was_stopped_returns_after_the_window() -> None:
    world = NodeWorld(node("n0"), node("n1"), queue(100), plain("w1", 1), plain("w2", 1))
    world.decide()
    world.put(window(*on(world, "w2")))
    assert of(at(world, BEGIN).decide(), Evict) == ["w2"]
    world.change("w2", admission=None, admitted=False, reserved_at=0, requeued=True)
    world.decide()
    assert world.engine.state_of("team/w1") == "Admitted"
    assert world.engine.state_of("team/w2") != "Admitted"
    message = "Node n1 is reserved from 2026-01-01 03:00 UTC until 2026-01-01 05:00 UTC (maintenance 'weekly')"
    assert message in why(world, "w2")
    assert "may start there before" not in why(world, "w2")
    assert world.engine.next_wakeup(world.now) == END
    assert of(at(world, END).decide(), Admit) == ["w2"]


def test_in_its_window_a_node_is_for_whom_the_window_names() -> None:
    mine = window("n0", "n1", cluster_queues=frozenset({"ours"}))
    world = NodeWorld(node("n0"), node("n1"), queue(100), queue(100, "ours"), mine)
    world.put(plain("w1", 1, queue="ours"))
    assert of(world.decide(), Admit) == ["w1"]  # before it, too, without any limit
    at(world, BEGIN)
    world.put(plain("w2", 1), plain("w3", 1, queue="ours"))
    assert of(world.decide(), Admit) == ["w3"]
    assert not of(at(world, BEGIN + HOUR).decide(), Evict)


def test_a_window_for_a_local_queue_admits_no_other_of_its_cluster_queue() -> None:
    mine = window("n0", local_queues=frozenset({"team/q"}))
    world = NodeWorld(node("n0"), queue(100), mine, plain("w1", 1))
    world.engine.observe(Put(LocalQueue("other", "q", "q")))
    world.put(replace(plain("w0", 1), namespace="other"))
    assert of(world.decide(), Admit) == ["w1"]


def test_a_window_that_is_taken_away_gives_its_nodes_back_at_once() -> None:
    world = NodeWorld(node("n0"), queue(100), window("n0"), plain("w1", 1))
    assert of(at(world, BEGIN + HOUR).decide(), Admit) == []
    world.engine.observe(Gone(ReservedWindow, f"weekly/{BEGIN}"))
    assert of(world.decide(), Admit) == ["w1"]


def test_of_overlapping_windows_each_counts() -> None:
    first, second = window("n0"), window("n0", begin=BEGIN + HOUR, end=END + HOUR)
    world = NodeWorld(node("n0"), queue(100), first, second, limited("w1", 1, 3))
    assert of(world.decide(), Admit) == []
    assert of(at(world, END).decide(), Admit) == []
    assert of(at(world, END + HOUR).decide(), Admit) == ["w1"]


def test_many_windows_that_come_together_are_one_look_at_nodes_and_holders(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = {"nodes": 0, "holders": 0}

    def counted(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def count(*given: object) -> object:
            looks[name] += 1
            return real(*given)

        return count

    hosts = [node(f"n{number}") for number in range(6)]
    world = NodeWorld(*hosts, queue(100), *(plain(f"w{number}", 1) for number in range(4)))
    world.decide()
    world.bind()
    monkeypatch.setattr(Windows, "marked", counted("nodes", Windows.marked))
    monkeypatch.setattr(Windows, "let_stay", counted("holders", Windows.let_stay))
    many = [window("n1", begin=BEGIN + number * HOUR, end=BEGIN + number * HOUR + MINUTE) for number in range(50)]
    world.put(*many)
    assert world.engine.next_wakeup(world.now) == world.now
    world.engine.explain("team/w9")  # an answer before the decision sees them, too
    assert len(world.engine._store.node_ledger.nodes["n1"].node.taints) == 50
    world.decide()
    assert looks == {"nodes": 6, "holders": 4}


def test_an_engine_that_is_built_again_keeps_to_the_windows() -> None:
    world = NodeWorld(node("n0"), node("n1"), queue(100), window("n0", "n1"), limited("w1", 1, 1), limited("w2", 1, 1))
    world.decide()
    world.bind()
    engine = Engine(Settings(pods_ready=None))
    for fact in world.engine.facts():
        engine.observe(fact)
    assert not [each for each in engine.decide(world.now + 1000) if isinstance(each, Admit | Evict)]
    assert sorted(of(engine.decide(BEGIN), Evict)) == ["w1", "w2"]


def test_what_can_never_fit_is_no_head_because_of_a_window() -> None:
    world = NodeWorld(node("n0"), node("n1"), queue(100, backfill=Backfill()), window("n0", "n1"))
    world.put(limited("w1", 1, 1), plain("w2", 9), limited("w3", 2, 4))
    assert of(world.decide(), Admit) == ["w1"]
    assert world.engine.reservations() == {"team/w3": END}


def test_pods_on_nodes_that_nobody_chose_leave_once_and_not_again() -> None:
    """A flavor without node labels: the scheduler may bind a pod to a reserved node again."""
    anywhere = Flavor("anywhere")
    world = NodeWorld(anywhere, node("n0"), queue(100, flavor="anywhere"), window("n0"), plain("w1", 1))
    assert of(world.decide(), Admit) == ["w1"]
    pods = WorkloadPods("team/w1", (BoundPod("p", "main", "n0", ready=True),))
    world.engine.observe(Put(pods))
    assert of(at(world, BEGIN).decide(), Evict) == ["w1"]
    world.change("w1", admission=None, admitted=False, reserved_at=0, evicted="", requeued=True)
    world.engine.observe(Gone(WorkloadPods, "team/w1"))
    assert of(world.decide(), Admit) == ["w1"]
    world.engine.observe(Put(pods))
    assert of(world.decide(), Evict) == []


def test_topologies_of_hosts_keep_to_windows_too() -> None:
    hosts = [Node(name, {"kubernetes.io/hostname": name}, {GPU: 8, "pods": 20}) for name in ("n0", "n1")]
    world = EngineWorld(Topology("hosts", ("kubernetes.io/hostname",)), Flavor("a100", topology="hosts"), *hosts)
    world.put(cluster_queue("q", 100), window("n1"))

    def placed(name: str, **fields: object) -> Workload:
        pods = (PodSet("main", 1, {GPU: 8}, topology=TopologyRequest(unconstrained=True)),)
        return replace(gang(name, pod_sets=pods), **fields)  # pyright: ignore

    world.put(placed("w1"), placed("w2"), placed("w3", max_execution_seconds=3600))
    assert of(world.decide(), Admit) == ["w1", "w3"]
    found = world.engine.explain("team/w2")
    assert found is not None and "Node n1 is reserved from 2026-01-01 03:00 UTC" in found.message
    places = [each.topology for name in ("w1", "w3") for each in admitted(world, name).pod_sets]
    assert [place.domains[0].values for place in places if place is not None] == [("n0",), ("n1",)]
    world.now = BEGIN - 1000
    assert of(world.decide(), Evict) == ["w3"]


def admitted(world: EngineWorld, name: str) -> Admission:
    admission = world.workloads[f"team/{name}"].admission
    assert admission is not None
    return admission


def test_expected_starts_know_the_windows() -> None:
    world = NodeWorld(node("n0"), queue(100), window("n0"), limited("w1", 1, 2), limited("w2", 1, 2))
    for name in ("w1", "w2"):
        world.engine.observe(
            Put(RuntimeForecast(f"team/{name}", ((0.1, 2 * HOUR - 2), (0.9, 2 * HOUR - 1)), "Model", 12))
        )
    assert of(world.decide(), Admit) == ["w1"]
    seen = outlook(world.engine.facts(), world.engine.settings, world.now, clock=time.perf_counter)
    assert (seen.starts["team/w2"].p50, seen.starts["team/w2"].p90) == (END, END)


# --- reservations of heads --------------------------------------------------------------------------------------------


def test_a_head_is_planned_around_a_window() -> None:
    world = NodeWorld(node("n0"), node("n1"), queue(100, backfill=Backfill()), window("n0", "n1"))
    world.put(limited("w1", 1, 1), limited("w2", 2, 4))
    assert of(world.decide(), Admit) == ["w1"]
    assert world.engine.reservations() == {"team/w2": END}
    world.put(limited("w3", 1, 1))  # ends before the window, so it delays nobody
    assert of(world.decide(), Admit) == ["w3"]


def test_a_head_that_ends_before_the_window_is_planned_before_it() -> None:
    world = NodeWorld(node("n0"), node("n1"), queue(100, backfill=Backfill()), window("n0", "n1"))
    world.put(limited("w1", 1, 1), limited("w2", 2, 1.5))
    assert of(world.decide(), Admit) == ["w1"]
    assert world.engine.reservations() == {"team/w2": world.now + HOUR}


# --- random histories -------------------------------------------------------------------------------------------------


class Played(Simulation):
    """Runs as long as `lengths` says, but never longer than their limits. Their pods are bound where they have room. Noted is who
    is on nodes of an open window, and whom an engine with the same facts and no past would start.
    """

    def __init__(
        self, lengths: dict[str, Millis], windows: list[ReservedWindow], nodes: int, *, backfill: bool
    ) -> None:
        super().__init__(Engine(Settings(pods_ready=None)), START)
        self.lengths, self.windows = lengths, windows
        self.intruders: list[str] = []
        #: workload -> its user
        self.users: dict[str, str] = {}
        self.missed: list[str] = []
        self.backfill = backfill
        config = queue(100, backfill=Backfill() if backfill else None)
        local_queues = LocalQueue("team", "q", "q"), LocalQueue("team", "ours", "ours")
        hosts = [node(f"n{number}") for number in range(nodes)]
        for item in (FLAVOR, config, queue(100, "ours"), *local_queues, *hosts, *windows):
            self.observe(Put(item))

    def length(self, workload: Workload, run: SimulatedRun) -> Millis | None:
        length, limit = self.lengths[workload.name], workload.max_execution_seconds
        return length if limit is None else min(length, limit * 1000)

    def started(self, workload: Workload) -> None:
        places = self.engine.places_of(workload.key) or {}
        spots = [(name, host) for name, each in places.items() for host, count in each.items() for _ in range(count)]
        pods = (BoundPod(f"{workload.name}-{n}", name, host, ready=True) for n, (name, host) in enumerate(spots))
        self.observe(Put(WorkloadPods(workload.key, tuple(pods))))

    def stopped(self, workload: Workload, run: SimulatedRun | None, reason: str) -> None:
        self.observe(Gone(WorkloadPods, workload.key))

    def ended(self, workload: Workload, run: SimulatedRun) -> None:
        self.observe(Gone(WorkloadPods, workload.key))

    def settled(self) -> None:
        if not self.backfill:
            fresh = Engine(Settings(pods_ready=None))
            for fact in self.engine.facts():
                fresh.observe(fact)
            self.missed += of(fresh.decide(self.now), Admit)
        for window in self.windows:
            if not window.soft and window.begin <= self.now < window.end:
                for key in self.runs:
                    places = self.engine.places_of(key) or {}
                    there = {host for each in places.values() for host in each} & window.nodes
                    ours = self.workloads[key].queue in window.cluster_queues or self.users.get(key) in window.users
                    if there and not ours:
                        self.intruders.append(f"{key} on {sorted(there)} at {self.now}")


@st.composite
def histories(draw: st.DrawFn) -> Played:
    nodes = draw(st.integers(1, 4))
    names = [f"n{number}" for number in range(nodes)]
    windows: list[ReservedWindow] = []
    for number in range(draw(st.integers(1, 3))):
        begin = START + draw(st.integers(-30, 300)) * MINUTE
        chosen = frozenset(draw(st.lists(st.sampled_from(names), min_size=1, unique=True)))
        owners = frozenset(draw(st.sampled_from(((), ("ours",)))))
        end = begin + draw(st.integers(1, 200)) * MINUTE
        users = frozenset(draw(st.sampled_from(((), ("mira",)))))
        notice, lead = draw(st.integers(0, 30)) * MINUTE, draw(st.integers(0, 5)) * MINUTE
        made = ReservedWindow(f"w{number}", f"w{number}", begin, end, chosen, notice=notice, lead=lead)
        shortest = draw(st.sampled_from((None, 0, 30 * MINUTE)))
        windows.append(replace(made, cluster_queues=owners, users=users, shortest_run=shortest))
    lengths: dict[str, Millis] = {}
    jobs: list[Workload] = []
    for number in range(draw(st.integers(1, 8))):
        name = f"j{number}"
        lengths[name] = draw(st.integers(1, 400)) * MINUTE
        limit = draw(st.sampled_from((None, 600, 3600, 7200, 36_000)))
        owner = draw(st.sampled_from(("q", "ours")))
        job = replace(plain(name, draw(st.integers(1, nodes)), queue=owner), max_execution_seconds=limit)
        jobs.append(replace(job, checkpoint_seconds=draw(st.sampled_from((None, 60.0, 3600.0)))))
    played = Played(lengths, windows, nodes, backfill=draw(st.booleans()))
    for job in jobs:
        if draw(st.booleans()):  # which may be wrong: what outlasts it is stopped
            expected = draw(st.integers(1, 200)) * MINUTE
            played.observe(Put(RuntimeForecast(job.key, ((0.5, expected), (0.9, 2 * expected)), "Model", 12)))
        if draw(st.booleans()):
            played.users[job.key] = "mira"
            played.observe(Put(Submitter(job.key, "mira")))
        if draw(st.booleans()):  # its pods take so long to end
            played.observe(Put(SaveTime(job.key, draw(st.integers(0, 40)) * MINUTE)))
        played.put(job)
    return played


@settings(max_examples=60, deadline=None)
@given(histories())
def test_nobody_is_in_a_window_but_those_whom_it_is_for_and_nobody_waits_in_vain(played: Played) -> None:
    played.play()
    assert not played.intruders
    assert not played.missed
    assert not played.workloads, "all jobs ran in the end"


@pytest.mark.parametrize("backfill", [False, True])
def test_without_a_window_nothing_is_marked(backfill: bool) -> None:
    world = NodeWorld(node("n0"), queue(100, backfill=Backfill() if backfill else None), plain("w1", 1, TPU and 4))
    world.decide()
    assert not world.engine._store.windows
    assert all(not tracked.node.taints for tracked in world.engine._store.node_ledger.nodes.values())
