"""Telemetry rules: what answers of a Prometheus make of nodes, when workloads have to leave them, and what policies say of it."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.builders.objects import T
from tests.builders.parts import PartWorld
from tests.examples import examples
from tests.objects import Stored

from gangline.api.admission.findings import AdmissionFacts
from gangline.api.admission.of_queues import queuepolicy
from gangline.api.read import policy_reader
from gangline.api.read.parse import ParseError
from gangline.api.telemetry_rules import Limit, TelemetryRule, limit
from gangline.control.nodes.telemetry.rule_state import Measured, RuleState, kept, measured, number_text
from gangline.control.nodes.telemetry.telemetry_rules import (
    AT_ONCE,
    LONGEST_PAUSE,
    MOST_RULES,
    NO_SOURCE,
    TOO_MANY,
    TelemetryRules,
)
from gangline.control.writes.status import policy_status
from gangline.engine import Engine, model
from gangline.engine.model import EXCLUDED, READING, TAKEN
from gangline.engine.topology.policy_filter import number
from gangline.kube import resources as kube
from gangline.telemetry import Sample, SourceError

Json = dict[str, Any]
PERIOD = 30_000
HOT = {"above": 90, "clearAt": 80, "periods": 3}


def rule(**fields: Any) -> TelemetryRule:
    usual = TelemetryRule("p", "temp", "q", "", PERIOD, Limit(85, 80, True), None, 3, dry_run=False)
    return replace(usual, **fields)


def policy(*telemetry: Json, name: str = "p", status: Json | None = None, **placement: Any) -> Stored:
    rules = {"telemetry": list(telemetry)} if telemetry else {}
    spec = {"clusterQueues": {"names": ["q"]}, "placement": {"profile": "Pack", **rules, **placement}}
    meta = {"name": name, "generation": 1, "uid": name, "resourceVersion": str(id(spec))}
    return Stored({"kind": "QueuePolicy", "metadata": meta, "spec": spec, "status": status or {}})


def sample(node: str, value: float, at: int = T, label: str = "node") -> Sample:
    return Sample({label: node}, at / 1000, value)


# --- what is read of a policy -------------------------------------------------------------------------------------------


def test_rules_become_filters_and_what_scorers_look_at() -> None:
    found = policy_reader.placement(
        policy(
            {"name": "temp", "query": "t", "exclude": {"above": 85, "clearAt": 80}},
            {"name": "load", "query": "l"},
            {"name": "spread", "query": "s"},
            profile=None,
            scores=[
                {"name": "TargetLoad", "telemetry": "load", "target": 60},
                {"name": "RiskBalance", "telemetry": "load", "deviation": "spread"},
            ],
        )
    )
    load = f"{READING}p/load"
    assert found is not None
    assert found.filters == (model.PlacementFilter("Telemetry", annotation=f"{READING}p/temp{EXCLUDED}"),)
    assert found.scores == (
        model.PlacementScore("TargetLoad", annotation=load, target=60),
        model.PlacementScore("RiskBalance", annotation=load, deviation=f"{READING}p/spread"),
    )


@pytest.mark.parametrize(
    ("placement", "where", "said"),
    [
        ({"telemetry": [{"period": "1s"}]}, "telemetry[0].period", "must be from 5s to 1h"),
        ({"telemetry": [{"period": "soon"}]}, "telemetry[0].period", ""),
        (
            {"telemetry": [{"exclude": {"above": 80, "clearAt": 85}}]},
            "telemetry[0].exclude",
            "clearAt must not be higher",
        ),
        ({"telemetry": [{"evict": {"below": 5, "clearAt": 4}}]}, "telemetry[0].evict", "clearAt must not be lower"),
        ({"telemetry": [{"evict": {"below": 5, "above": 4}}]}, "telemetry[0].evict", "set above or below"),
        ({"telemetry": [{"exclude": {"above": "hot"}}]}, "telemetry[0].exclude", ""),
        ({"scores": [{"name": "TargetLoad", "telemetry": "no"}]}, "scores[0].telemetry", "the name of a rule"),
        (
            {"telemetry": [{}], "scores": [{"name": "RiskBalance", "telemetry": "r", "deviation": "a/b"}]},
            "scores[0].deviation",
            "the name of a rule",
        ),
    ],
)
def test_what_a_rule_may_not_say_is_refused_with_its_field(placement: Json, where: str, said: str) -> None:
    rules = [{"name": "r", "query": "q", **each} for each in placement.get("telemetry", ())]
    body = {"clusterQueues": {"names": ["q"]}, "placement": {**placement, **({"telemetry": rules} if rules else {})}}
    obj = {"metadata": {"name": "p"}, "spec": body}
    (error,) = queuepolicy.validate(obj, None, AdmissionFacts())
    assert error.path == f"spec.placement.{where}" and said in error.message
    with pytest.raises(ParseError, match=r"spec\.placement"):
        policy_reader.placement(obj)


def test_a_good_rule_is_not_refused() -> None:
    obj = policy(
        {"name": "r", "query": "up", "period": "5s", "exclude": {"below": "0.5", "clearAt": "600m"}, "evict": HOT}
    )
    assert queuepolicy.validate(obj, None, AdmissionFacts()) == []
    (found,) = policy_reader.telemetry_rules(obj)
    assert found.exclude is not None and found.exclude.text == "below 0.5 (until 0.6)"
    assert found.exclude == Limit(0.5, 0.6, above=False)
    assert (found.period, found.periods, found.evict) == (5_000, 3, Limit(90, 80, above=True))


# --- answers ------------------------------------------------------------------------------------------------------------


def test_an_answer_is_read_by_node_and_says_what_is_wrong_with_it() -> None:
    samples = [
        sample("a", 60),
        sample("b:9400", 70, label="instance"),
        sample("c", 88, label="Hostname"),
        sample("d", 1),
        sample("d", 2),
        sample("gone", 5),
        Sample({"node": 7}, T / 1000, 1.0),
        Sample({}, T / 1000, 1.0),
        sample("e", 5, at=T - 61_000),
        sample("f", 5, at=T + 61_000),
    ]
    found = measured(samples, rule(), set("abcdef").__contains__, T)
    assert found.values == {"a": 60, "b": 70, "c": 88}
    assert found.trouble == (
        "several values for d: aggregate them by node; 3 values are of no known node; 2 values are too old, or of the future"
    )
    chosen = measured([sample("a", 1, label="host"), sample("b", 2)], rule(node_label="host"), {"a"}.__contains__, T)
    assert chosen.values == {"a": 1} and chosen.trouble == "1 values are of no known node"


@given(st.floats(allow_nan=False, allow_infinity=False, width=64))
@examples(200)
def test_scorers_can_read_every_number_and_small_changes_are_none(value: float) -> None:
    found = number(number_text(value))
    wanted = min(max(value, 0.0), 999_999_999.0)
    assert found is not None and math.isclose(found, wanted, rel_tol=0.006, abs_tol=1e-6)
    assert len(number_text(value).replace(".", "").strip("0")) <= 3 or wanted > 999_499_999


# --- states of nodes ----------------------------------------------------------------------------------------------------


def test_l5_a_node_is_excluded_until_its_number_has_come_back_far_enough() -> None:
    state = RuleState(rule())
    for value, wanted in ((85, False), (86, True), (81, True), (80, False), (84, False), (88, True)):
        state.take(Measured({"a": float(value), "b": 60.0}), T)
        assert (state.excluded() == ["a"]) is wanted, value
        said = {f"{READING}p/temp{EXCLUDED}": "telemetry rule temp above 85 (until 80)"}
        assert state.marks("a") == (said if wanted else {}) and state.marks("b") == {}
    state.take(Measured({"b": 60.0}), T)
    assert state.excluded() == [], "who is not measured is not excluded"


def test_l5_a_workload_has_to_leave_after_so_many_periods_in_a_row() -> None:
    state = RuleState(rule(exclude=None, evict=Limit(90, 80, True)))
    for value, due in ((91, False), (85, False), (79, False), (95, False), (92, False), (81, True)):
        state.take(Measured({"a": float(value)}), T)
        assert bool(state.due()) is due, value
    state.evicted_from("a")
    assert state.due() == [] and state.excluded() == ["a"]
    for due in (False, False, True):
        state.take(Measured({"a": 95.0}), T)
        assert bool(state.due()) is due
    state.take(Measured({}), T)
    state.take(Measured({"a": 95.0}), T)
    assert state.due() == [], "a period without a number begins anew"


def test_numbers_that_are_too_old_say_nothing_any_more() -> None:
    state = RuleState(rule(), scored=True)
    state.take(Measured({"a": 88.0}), T)
    state.fail("down")
    assert state.expire(T + kept(state.rule)) == [] and state.excluded() == ["a"]
    assert set(state.expire(T + kept(state.rule) + 1)) == {"a"}
    assert state.excluded() == [] and state.marks("a") == {}


@given(st.lists(st.floats(0, 100), max_size=40), st.integers(0, 100), st.integers(0, 100), st.booleans())
@examples(200)
def test_nothing_flaps_between_a_limit_and_where_it_is_cleared(
    values: list[float], one: int, other: int, above: bool
) -> None:
    """Law: between two changes of what a node is, its number has crossed the whole distance."""
    bound, clear = (max(one, other), min(one, other)) if above else (min(one, other), max(one, other))
    found = limit(bound, None, clear) if above else limit(None, bound, clear)
    violated = False
    for value in values:
        now = found.violated(value, before=violated)
        if now != violated:
            crossed = value > bound if above else value < bound
            back = value <= clear if above else value >= clear
            assert crossed if now else back
        violated = now


# --- the part -----------------------------------------------------------------------------------------------------------


class Prometheus:
    """Answers by query: samples, an error, or never."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Sample] | Exception | None] = {}
        self.asked: list[str] = []
        self.open = self.most_open = 0

    async def series(self, query: str, *, seconds: float, most_bytes: int) -> list[Sample]:
        assert seconds <= 10 and most_bytes <= 8 << 20
        self.asked.append(query)
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        try:
            await asyncio.sleep(0)
            answer = self.answers.get(query, [])
            if answer is None:
                await asyncio.Event().wait()
            if isinstance(answer, Exception):
                raise answer
            return answer or []
        finally:
            self.open -= 1


class TelemetryWorld(PartWorld):
    def __init__(self, *policies: Stored, nodes: int = 3, source: bool = True) -> None:
        self.engine = Engine()
        self.facts: list[model.Change] = []
        super().__init__()
        self.mirror.observe = self._fact
        self.prometheus = Prometheus()
        context = self.context(engine=self.engine)
        self.metrics = context.metrics
        self.part = TelemetryRules(context, self._fact, self.prometheus if source else None)
        self.put(kube.CLUSTER_QUEUES, Stored({"kind": "ClusterQueue", "metadata": _meta("q"), "spec": {}}))
        for number_ in range(nodes):
            self.put(kube.NODES, a_node(f"n{number_}"))
        self.put(kube.QUEUE_POLICIES, *policies)
        self.part.lead()

    def _fact(self, change: model.Change) -> None:
        self.facts.append(change)
        self.engine.observe(change)

    async def at(self, seconds: float) -> None:
        """Rounds of the loop until all questions are answered that can be."""
        self.now = T + round(1000 * seconds)
        for _ in range(4):
            self.part.act(self.now)
            for _ in range(4):
                await asyncio.sleep(0)
        self.part.act(self.now)

    def answer(self, query: str, seconds: float = 0, **values: float) -> None:
        at = T + round(1000 * seconds)
        self.prometheus.answers[query] = [sample(node, value, at) for node, value in values.items()]

    def said(self, node: str) -> dict[str, str]:
        """What the engine knows of a node."""
        found = self.engine._store.nodes[node].annotations
        return {key.removeprefix(READING): value for key, value in found.items() if key.startswith(READING)}

    def evictions(self) -> list[tuple[str, str]]:
        found = [each.item for each in self.facts if isinstance(each, model.Put)]
        return [(each.workload, each.message) for each in found if isinstance(each, model.NodeEviction)]

    def status(self, name: str = "p") -> Json:
        obj = self.mirror.objects[kube.QUEUE_POLICIES][name]
        return policy_status.status(
            obj, policy_status.SelectedQueues(("q",)), now=self.now, telemetry=self.part.report(name)
        )

    def condition(self) -> tuple[str, str, str]:
        (row,) = [each for each in self.status()["conditions"] if each["type"] == "TelemetryAvailable"]
        return row["status"], row["reason"], row["message"]

    def run(self, name: str, node: str, *, priority: int = 0, seconds: int = 0, **status: Any) -> None:
        """A workload that runs on a node by the policy."""
        self.put(kube.WORKLOADS, running(name, node, priority, seconds, **status))


def _meta(name: str, **more: Any) -> Json:
    return {"name": name, "uid": name, "resourceVersion": "1", **more}


def a_node(name: str) -> Stored:
    labels = {"kubernetes.io/hostname": name}
    status = {"allocatable": {"cpu": "10", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}
    return Stored({"kind": "Node", "metadata": _meta(name, labels=labels), "spec": {}, "status": status})


def running(name: str, node: str, priority: int, seconds: int, **status: Any) -> Stored:
    at = f"2026-01-01T00:00:{seconds:02}Z"
    levels = ["kubernetes.io/hostname"]
    slices = [{"domainCount": 1, "podCounts": {"universal": 1}, "valuesPerLevel": [{"universal": node}]}]
    assigned = {
        "name": "main",
        "count": 1,
        "flavors": {"cpu": "f"},
        "resourceUsage": {"cpu": "1"},
        "topologyAssignment": {"levels": levels, "slices": slices},
    }
    rows = [
        {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": at}
        for kind in ("QuotaReserved", "Admitted")
    ]
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return Stored(
        {
            "kind": "Workload",
            "metadata": _meta(name, namespace="team", uid=f"{name}-{seconds}", creationTimestamp=at),
            "spec": {
                "queueName": "lq",
                "priority": priority,
                "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}],
            },
            "status": {
                "admission": {"clusterQueue": "q", "podSetAssignments": [assigned]},
                "conditions": [*rows, *status.get("conditions", ())],
            },
        }
    )


TEMP = {"name": "temp", "query": "t", "exclude": {"above": 85, "clearAt": 80}}
EVICTS = {"name": "temp", "query": "t", "evict": HOT}


async def test_nodes_are_excluded_by_answers_and_the_policy_says_which() -> None:
    world = TelemetryWorld(policy(TEMP))
    world.answer("t", n0=88, n1=60)
    await world.at(0)
    assert world.said("n0") == {f"p/temp{EXCLUDED}": "telemetry rule temp above 85 (until 80)"}
    assert world.said("n1") == world.said("n2") == {}
    status = world.status()
    assert status["telemetry"] == [{"name": "temp", "measured": 2, "excluded": ["n0"]}]
    assert world.condition() == ("True", "Answered", "All queries are answered")
    count = world.metrics.registry.get_sample_value
    labels = {"queue_policy": "p", "rule": "temp"}
    assert count("gangline_telemetry_nodes", {**labels, "state": "excluded"}) == 1
    assert count("gangline_telemetry_nodes", {**labels, "state": "measured"}) == 2
    assert world.part.due == T + PERIOD
    await world.at(10)
    assert world.prometheus.asked == ["t"], "its period is not over"
    facts = len(world.facts)
    world.answer("t", 30, n0=84, n1=70)
    await world.at(30)
    assert len(world.facts) == facts, "what only changes numbers that nobody looks at is no news"
    world.answer("t", 60, n0=80, n1=70)
    await world.at(60)
    assert world.said("n0") == {} and "excluded" not in world.status()["telemetry"][0]


async def test_scorers_get_numbers_and_what_was_taken_of_the_cpu_then() -> None:
    load = {"name": "load", "query": "l"}
    world = TelemetryWorld(policy(load, profile=None, scores=[{"name": "TargetLoad", "telemetry": "load"}]))
    world.engine.observe(model.Put(model.ForeignPod("x/y", "n0", {"cpu": 2500})))
    world.answer("l", n0=37.256, n1=-4)
    await world.at(0)
    assert world.said("n0") == {"p/load": "37.3", f"p/load{TAKEN}": "2500"}
    assert world.said("n1") == {"p/load": "0", f"p/load{TAKEN}": "0"} and world.said("n2") == {}


async def test_a_query_that_fails_costs_only_its_own_rule_and_is_asked_less_often() -> None:
    world = TelemetryWorld(policy(TEMP, {"name": "bad", "query": "b", "exclude": {"above": 1}}))
    world.answer("t", n0=88)
    world.prometheus.answers["b"] = SourceError("query 'b': parse error")
    await world.at(0)
    assert world.said("n0") == {f"p/temp{EXCLUDED}": "telemetry rule temp above 85 (until 80)"}
    assert world.condition() == ("False", "QueryFailed", "bad: query 'b': parse error")
    assert world.status()["telemetry"][0] == {"name": "bad", "measured": 0, "message": "query 'b': parse error"}
    assert world.recorder.said == [("TelemetryUnavailable", "Telemetry rule bad: query 'b': parse error")]
    times: list[float] = []
    for second in range(0, 1200, 10):
        world.answer("t", second, n0=88)
        before = world.prometheus.asked.count("b")
        await world.at(second)
        times += [second] * (world.prometheus.asked.count("b") - before)
    gaps = [after - before for before, after in pairwise(times)]
    assert times[0] == 60 and gaps == sorted(gaps) and gaps[-1] == LONGEST_PAUSE / 1000
    assert len(world.recorder.said) == 1, "it is said once"
    labels = {"queue_policy": "p", "rule": "bad"}
    assert world.metrics.registry.get_sample_value("gangline_telemetry_query_failures_total", labels) == len(times) + 1
    world.answer("b", 1500, n1=2)
    await world.at(1500)
    assert world.condition()[0] == "True" and f"p/bad{EXCLUDED}" in world.said("n1")


async def test_an_answer_that_does_not_come_holds_up_no_other_and_old_numbers_end() -> None:
    hanging = [{"name": f"h{number_}", "query": f"h{number_}"} for number_ in range(AT_ONCE - 1)]
    world = TelemetryWorld(policy(TEMP, *hanging))
    world.prometheus.answers |= {each["query"]: None for each in hanging}
    world.answer("t", n0=88)
    await world.at(0)
    assert world.said("n0") and world.prometheus.most_open <= AT_ONCE
    world.prometheus.answers["t"] = SourceError("down")
    await world.at(30)
    assert world.said("n0"), "for two periods, and for a minute, the last number counts"
    await world.at(61)
    assert world.said("n0") == {}
    await world.part.close()
    assert world.prometheus.open == 0


async def test_another_operator_knows_which_nodes_are_excluded_and_counts_periods_anew() -> None:
    both = {**EVICTS, "exclude": {"above": 85, "clearAt": 70}}
    status = {"telemetry": [{"name": "temp", "excluded": ["n0", 7]}, "x"]}
    world = TelemetryWorld(policy(both, status=status))
    world.part.act(T)
    assert f"p/temp{EXCLUDED}" in world.said("n0"), "before anything was answered"
    world.run("w", "n0")
    for number_ in range(4):
        world.answer("t", 30 * number_, n0=84)
        await world.at(30 * number_)
    assert world.said("n0") and world.evictions() == [], "84 is between 70 and 85, and was never above 90"
    lone = TelemetryWorld(policy(TEMP, status=status))
    await lone.at(0)
    assert lone.said("n0") == {}, "the answer says nothing of it"


async def test_a_workload_leaves_after_so_many_periods_and_the_next_one_after_as_many_again() -> None:
    world = TelemetryWorld(policy(EVICTS))
    world.run("old", "n0", seconds=1)
    world.run("new", "n0", seconds=9)
    world.run("important", "n0", priority=5, seconds=9)
    world.run("elsewhere", "n1")
    for number_ in range(9):
        world.answer("t", 30 * number_, n0=91, n1=60)
        await world.at(30 * number_)
        if number_ == 2:
            assert [key for key, _ in world.evictions()] == ["team/new"]
    assert [key for key, _ in world.evictions()] == ["team/new", "team/old", "team/important"]
    assert world.evictions()[0][1] == (
        "Node n0 violates telemetry rule temp of QueuePolicy p: 91, which is above 90 (until 80), and so in 3 periods in a row. "
        "The workload is stopped and queued again"
    )
    evicted = {"type": "Evicted", "status": "True", "reason": "NodeMetric", "message": "", "lastTransitionTime": "x"}
    obj = running("new", "n0", 0, 9, conditions=[{**evicted, "lastTransitionTime": "2026-01-01T00:02:00Z"}])
    obj["metadata"]["resourceVersion"] = "2"
    world.put(kube.WORKLOADS, obj)
    world.part.act(world.now)
    assert model.Gone(model.NodeEviction, "team/new") in world.facts


@pytest.mark.parametrize("change", ["dryRun", "no rule", "other policy"])
async def test_nobody_leaves_whose_policy_has_no_such_rule_or_is_only_tried_out(change: str) -> None:
    telemetry = [] if change == "no rule" else [EVICTS]
    policies = [policy(*telemetry, dryRun=change == "dryRun")]
    if change == "other policy":
        other = policy(name="a")  # of equal precedence the first by name is in force
        policies.append(other)
    world = TelemetryWorld(*policies)
    world.run("w", "n0")
    for number_ in range(5):
        world.answer("t", 30 * number_, n0=91)
        await world.at(30 * number_)
    assert world.evictions() == []


async def test_rules_that_are_gone_or_changed_say_nothing_more() -> None:
    world = TelemetryWorld(policy(TEMP))
    world.answer("t", n0=88)
    await world.at(0)
    changed = policy({**TEMP, "query": "u"})
    world.put(kube.QUEUE_POLICIES, changed)
    world.part.act(world.now)
    assert world.said("n0"), "the changed rule goes on from the nodes that were excluded"
    world.answer("u", 1, n0=50)
    await world.at(1)
    assert world.said("n0") == {} and world.prometheus.asked == ["t", "u"]
    world.answer("u", 31, n0=99)
    await world.at(31)
    assert world.said("n0")
    world.mirror.remove(kube.QUEUE_POLICIES, "p")
    await world.at(32)
    assert world.said("n0") == {} and world.part.due is None and not world.mirror.readings
    assert world.part.report("p") is None


async def test_without_a_prometheus_and_beyond_the_bound_the_policy_says_so() -> None:
    world = TelemetryWorld(policy(TEMP), source=False)
    await world.at(0)
    assert world.condition() == ("False", "QueryFailed", f"temp: {NO_SOURCE}")
    many = [
        policy(*({"name": f"r{number_}", "query": "t"} for number_ in range(8)), name=f"p{group}")
        for group in range(MOST_RULES // 8 + 1)
    ]
    crowd = TelemetryWorld(*many)
    for second in range(40):
        await crowd.at(second / 100)
    assert len(crowd.prometheus.asked) == MOST_RULES and crowd.prometheus.most_open <= AT_ONCE
    assert all(row["message"] == TOO_MANY for row in crowd.status(f"p{MOST_RULES // 8}")["telemetry"])


def test_without_rules_nothing_is_asked_and_nothing_is_said() -> None:
    world = TelemetryWorld(policy(), policy(name="b"))
    facts = len(world.facts)
    world.part.act(T)
    assert world.part.due is None and world.prometheus.asked == [] and len(world.facts) == facts
    assert "telemetry" not in world.status() and not world.mirror.readings


async def test_a_policy_that_cannot_be_read_costs_itself_alone() -> None:
    broken = policy({"name": "temp", "query": "t", "exclude": {}}, name="a")
    world = TelemetryWorld(broken, policy(TEMP))
    world.answer("t", n0=88)
    await world.at(0)
    assert world.said("n0") and world.part.report("a") is None
