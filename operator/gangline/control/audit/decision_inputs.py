"""What the engine knew when it made a decision, and whether it decides the same again, by a replay of the record up to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from gangline.control.audit.audit_check import named, without_reports
from gangline.control.audit.audit_log import Begin, Entry, Gap, Round
from gangline.engine import Engine, accelerators, accelerators_of, model
from gangline.kube.resources import Json

#: decisions of a round, and rows of a summary, that are listed one by one
MOST_LISTED: Final = 500
MOST_ROWS: Final = 32


class NotRepeatableError(Exception):
    """The record does not say all that came before the decision; the text says why."""


def inputs(entries: Iterable[Entry], place: int) -> Json:
    """The inputs of a decision: the one at this place of the round that is the last of the entries, which begin with a run.

    Workloads are named by their keys. Times are Unix seconds, amounts in the engine's units. Raises NotRepeatableError.
    """
    before, last = _Known(), None
    for entry in entries:
        if last is not None:
            before.take(last)
        last = entry
    if not isinstance(last, Round) or place >= len(last.decisions):
        raise NotRepeatableError("the record has no such decision")
    return before.decide(last, place)


def cheaper(
    parts: Iterable[Iterable[Entry]], places: Sequence[Sequence[int]], late: Callable[[], bool]
) -> list[list[Json]]:
    """Whether preemptions could have lost less: those at these places of the rounds with which the parts end. The parts follow
    each other, and the first begins with a run.

    Each is `{"cheaper": …}` (see `_Known.cheaper`), or `{"notRepeatable": why}`. Parts that come after it is `late` are left out.
    """
    known, answers = _Known(), list[list[Json]]()
    try:
        for entries, wanted in zip(parts, places, strict=True):
            last = None
            for entry in entries:
                if last is not None:
                    known.take(last)
                if late():
                    return answers
                last = entry
            answers.append([{"cheaper": known.cheaper_than(last, place)} for place in wanted])
            if last is not None:
                known.take(last)
    except NotRepeatableError as error:
        answers += [[{"notRepeatable": str(error)}] * len(wanted) for wanted in places[len(answers) :]]
    return answers


class _Known:
    """An engine, with the facts that it was given last."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._from_facts = False
        self._version = ""
        self._workloads: dict[str, model.Workload] = {}
        self._forecasts: dict[str, model.RuntimeForecast] = {}

    def take(self, entry: Entry) -> None:
        match entry:
            case Begin():
                self._engine, self._from_facts = Engine(entry.settings), entry.serial > 0
                self._version = entry.version
                self._workloads.clear()
                self._forecasts.clear()
            case Round():
                self._known().decide(entry.now, entry.room)
            case Gap(why):
                raise NotRepeatableError(f"the record has a gap before the decision: {why}")
            case _:
                self._note(entry)
                self._known().observe(entry)

    def _known(self) -> Engine:
        if self._engine is None:
            raise NotRepeatableError("the record does not say what was known at its beginning")
        return self._engine

    def _note(self, change: model.Change) -> None:
        match change:
            case model.Put(model.Workload() as workload):
                self._workloads[workload.key] = workload
            case model.Put(model.RuntimeForecast() as forecast):
                self._forecasts[forecast.workload] = forecast
            case model.Gone(kind, key) if kind is model.Workload:
                self._workloads.pop(key, None)
            case model.Gone(kind, key) if kind is model.RuntimeForecast:
                self._forecasts.pop(key, None)
            case _:
                pass

    def decide(self, entry: Round, place: int) -> Json:
        """The inputs of a decision of the next round, and that round decided again."""
        engine, decision = self._known(), entry.decisions[place]
        about = decision.about if isinstance(decision, model.Warn) else decision.workload
        queue = engine.cluster_queue_of(about)
        if not queue and isinstance(decision, model.Warn) and decision.kind == "ClusterQueue":
            queue = decision.about
        by = decision.by if isinstance(decision, model.Preempt) else ""
        known: Json = {
            "workload": self._workload(about, entry.now),
            "queue": _queue(engine, queue) if queue else None,
            "by": self._workload(by, entry.now) if by else None,
            "nodes": _nodes(engine),
            "cheaper": self._cheaper(entry, decision) if isinstance(decision, model.Preempt) else None,
        }
        repeated = tuple(engine.decide(entry.now, entry.room))
        recorded = entry.decisions
        if self._from_facts:
            recorded, repeated = without_reports(recorded), without_reports(repeated)
        return {
            "same": recorded == repeated,
            "recorded": _listed(recorded, repeated),
            "repeated": _listed(repeated, recorded),
            "inputs": known,
            "version": self._version,
        }

    def cheaper_than(self, entry: Entry | None, place: int) -> Json | None:
        """See `_cheaper`. Raises NotRepeatableError where the entry has no preemption at this place."""
        if isinstance(entry, Round) and place < len(entry.decisions):
            decision = entry.decisions[place]
            if isinstance(decision, model.Preempt):
                return self._cheaper(entry, decision)
        raise NotRepeatableError("the record has no such preemption")

    def _cheaper(self, entry: Round, decision: model.Preempt) -> Json | None:
        """What would have been lost if the queue of the preemptor chose its victims by least lost work, within its rules, and
        whether this victim would have been spared; None where that loses no less, or preempts nobody for it.
        """
        engine = self._known()
        queue, other = engine.cluster_queue_of(decision.by), Engine(engine.settings)
        for fact in engine.facts():
            if isinstance(fact, model.Put) and isinstance(fact.item, model.ClusterQueue) and fact.item.name == queue:
                victims = replace(fact.item.victims or model.VictimPolicy(), choice="LeastLostWork")
                fact = model.Put(replace(fact.item, victims=victims))
            other.observe(fact)
        victims = _victims(other.decide(entry.now, entry.room), decision.by)
        chosen, better = self._lost(_victims(entry.decisions, decision.by), entry.now), self._lost(victims, entry.now)
        if not victims or better["lostGpuHours"] >= chosen["lostGpuHours"]:
            return None
        return {"chosen": chosen, "instead": better, "spared": decision.workload not in victims}

    def _lost(self, victims: Sequence[str], now: model.Millis) -> Json:
        """How many workloads are preempted, and the GPU-hours that they lose."""
        seconds = sum(
            accelerators_of(self._workloads[key].pod_sets) * self._known().unsaved_seconds(key, now)
            for key in victims
            if key in self._workloads
        )
        return {"workloads": len(victims), "lostGpuHours": round(seconds / 3600, 3)}

    def _workload(self, key: str, now: model.Millis) -> Json | None:
        """What was known of a workload; None for an unknown one."""
        engine, workload = self._known(), self._workloads.get(key)
        if workload is None:
            return None
        queue, forecast = engine.cluster_queue_of(key), self._forecasts.get(key)
        waiting = engine.pending(queue) if queue else []
        ran = max(0, now - workload.admitted_at) if workload.admitted else 0
        amounts = Counter[str]()
        for pod_set in workload.pod_sets:
            for resource, amount in pod_set.requests.items():
                amounts[resource] += pod_set.count * amount
        return {
            "workload": key,
            "priority": workload.priority,
            "created": workload.created / 1000,
            "queue": workload.queue,
            "position": waiting.index(key) if key in waiting else None,
            "gpus": accelerators_of(workload.pod_sets),
            "amounts": dict(sorted(amounts.items())),
            "state": engine.state_of(key),
            "forecast": _forecast(forecast) if forecast is not None else None,
            "saved": round(workload.saved / 1000 + max(0.0, ran / 1000 - engine.unsaved_seconds(key, now)), 3),
        }


def _victims(decisions: Iterable[model.Decision], by: str) -> list[str]:
    """The workloads that are preempted for one."""
    return [each.workload for each in decisions if isinstance(each, model.Preempt) and each.by == by]


def _forecast(forecast: model.RuntimeForecast) -> Json | None:
    lengths = dict(forecast.quantiles)
    if 0.5 not in lengths or 0.9 not in lengths:
        return None
    return {"p50": lengths[0.5] / 1000, "p90": lengths[0.9] / 1000}


def _queue(engine: Engine, name: str) -> Json:
    figures = engine.cluster_queue_figures(name)
    quotas = sorted(figures.quotas.items()) if figures is not None else []
    head = engine.heads().get(name, "")
    reserved = engine.reservations().get(head) if head else None
    rows: list[Json] = []
    for (flavor, resource), quota in quotas[:MOST_ROWS]:
        limits = engine.quota_limits(name, flavor, resource)
        rows.append(
            {
                "flavor": flavor,
                "resource": resource,
                "nominal": quota.nominal,
                "used": quota.reservation,
                "borrowed": max(0, quota.reservation - quota.nominal),
                "available": max(0, limits.available) if limits is not None else 0,
            }
        )
    return {
        "name": name,
        "cohorts": engine.cohorts_of(name),
        "quotas": rows,
        "waiting": len(engine.pending(name)),
        "head": head,
        "reservedUntil": reserved / 1000 if reserved is not None else None,
    }


def _nodes(engine: Engine) -> Json:
    """How many nodes have how many accelerators free, of those to which new work may go, the emptiest first."""
    free = Counter(accelerators(left) for left in engine.free_on_nodes().values())
    rows = [{"gpus": gpus, "nodes": nodes} for gpus, nodes in sorted(free.items(), reverse=True)]
    return {"free": rows[:MOST_ROWS]}


def _listed(decisions: tuple[model.Decision, ...], others: tuple[model.Decision, ...]) -> list[str]:
    """The decisions as `Kind workload`; of very many only those that the other round has not."""
    if len(decisions) > MOST_LISTED:
        other = {named(decision): decision for decision in others}
        decisions = tuple(decision for decision in decisions if other.get(named(decision)) != decision)
    return [named(decision) for decision in decisions[:MOST_LISTED]]
