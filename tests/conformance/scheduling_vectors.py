"""Recorded scheduling scenarios: simulates the world between two cycles of the engine, as the recorder did, and compares.

One clock in whole seconds; cycle k happens at second 1 000 000 + k. Before each cycle due evictions complete, runtimes end and
events happen; after it the engine learns that its decisions were written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.conformance.recordings import Json, first_difference, tolerations

from gangline.engine import CycleRecord, Engine, Requeued
from gangline.engine.model import (
    Admission,
    ClusterQueue,
    Cohort,
    Expression,
    FairSharing,
    Flavor,
    FlavorQuotas,
    Fungibility,
    Gone,
    LocalQueue,
    PodSet,
    PodSetAssignment,
    PreemptionPolicy,
    Put,
    Quota,
    ResourceGroup,
    Settings,
    Taint,
    Workload,
)

EPOCH = 1_000_000


def compare(scenario: Json, result: Json) -> str | None:
    """The first recorded field of `result` that the engine gives differently, in words; None if it gives them all."""
    world = ScenarioWorld(scenario)
    if "timing" in result:
        return _compare_timed(world, result)
    for recorded in result["cycles"]:
        found = first_difference(f"cycle {recorded['cycle']}", _comparable(recorded), world.step(recorded["cycle"]))
        if found:
            return found
    recorded_end = {field: result[field] for field in ("stop", "final", "usage") if field in result}
    return first_difference("end", recorded_end, {field: value for field, value in world.end() if field in result})


def _compare_timed(world: ScenarioWorld, result: Json) -> str | None:
    """Large scenarios record less: the number of heads, reservations and victims. Times are not compared."""
    for recorded in result["cycles"]:
        _, record, preempted = world.advance(recorded["cycle"])
        got = {"heads": [str(len(record.heads))], "reserved": _reserved(record), "preempted": _by_workload(preempted)}
        expected = {name: recorded.get(name) or [] for name in got}
        found = first_difference(f"cycle {recorded['cycle']}", expected, got)
        if found:
            return found
    return None


def _reserved(record: CycleRecord) -> list[Json]:
    return _by_workload(
        [
            {
                "workload": _name(admit.workload),
                "clusterQueue": admit.admission.cluster_queue,
                "podSets": _pod_sets(admit.admission),
            }
            for admit in record.reserved
        ]
    )


def _by_workload(entries: list[Json]) -> list[Json]:
    return sorted(entries, key=lambda entry: entry["workload"])


def _comparable(recorded: Json) -> Json:
    """Absent and null mean empty."""
    fields = ("heads", "order", "reserved", "preempted", "requeued", "active", "inadmissible")
    lists = {name: recorded.get(name) or ({} if name in _TABLES else []) for name in fields}
    lists["requeued"] = [{"flavors": {}, "counts": {}, **entry} for entry in lists["requeued"]]
    return {"cycle": recorded["cycle"], "before": recorded.get("before") or {}, **lists}


_TABLES = ("order", "active", "inadmissible")


@dataclass
class Running:
    """A holder in the simulated world."""

    workload: Workload
    since: int  # cycle of its reservation
    evicted: int | None = None  # cycle of its eviction


@dataclass
class ScenarioWorld:
    """Everything around the scheduler, as the recorder simulated it."""

    scenario: Json
    #: creates the engine; a benchmark passes one that measures itself
    make_engine: Callable[[Settings], Engine] = Engine
    running: dict[str, Running] = field(default_factory=dict)
    waiting: dict[str, Workload] = field(default_factory=dict)
    runtimes: dict[str, int] = field(default_factory=dict)
    idle: int = 0  # cycles in a row
    lists: Json = field(default_factory=dict)

    def __post_init__(self) -> None:
        scenario = self.scenario
        config = scenario.get("config") or {}
        self.delay: int = config.get("evictionDelay") or 0
        self.engine = self.make_engine(_settings(config))
        self.queues = [queue["name"] for queue in scenario["clusterQueues"]]
        self.events = list(scenario.get("events") or ())
        for flavor in scenario.get("resourceFlavors") or ():
            self.engine.observe(Put(_flavor(flavor)))
        for cohort in scenario.get("cohorts") or ():
            self.engine.observe(Put(_cohort(cohort)))
        for queue in scenario["clusterQueues"]:
            self.engine.observe(Put(_cluster_queue(queue)))
        for queue in scenario.get("localQueues") or ():
            self.engine.observe(Put(LocalQueue(queue["namespace"], queue["name"], queue["clusterQueue"])))
        for workload in scenario.get("workloads") or ():
            self._create(workload)

    def _create(self, raw: Json) -> None:
        workload = _workload(raw)
        if raw.get("runtime"):
            self.runtimes[workload.name] = raw["runtime"]
        if workload.admission is not None:
            self.running[workload.name] = Running(workload, 0)
        else:
            self.waiting[workload.name] = workload
        self.engine.observe(Put(workload))

    # --- one cycle ----------------------------------------------------------------------------------------------------

    def step(self, cycle: int) -> Json:
        """Play what is before the cycle, the cycle, and what is after it; returns what is recorded of them."""
        before, record, preempted = self.advance(cycle)
        active = self._lists(self.engine.active)
        inadmissible = {queue: sorted(names) for queue, names in self._lists(self.engine.inadmissible).items()}
        self._note_idleness(record, {"active": active, "inadmissible": inadmissible})
        return {
            "cycle": cycle,
            "before": before,
            "heads": sorted(map(_name, record.heads)),
            "order": {root: list(map(_name, gangs)) for root, gangs in record.order.items()},
            "reserved": _reserved(record),
            "preempted": _by_workload(preempted),
            "requeued": _by_workload([_requeued(entry) for entry in record.requeued]),
            "active": active,
            "inadmissible": inadmissible,
        }

    def advance(self, cycle: int) -> tuple[dict[str, list[str]], CycleRecord, list[Json]]:
        """The same without reading the queues: the events before, the cycle, and its victims."""
        before = self._before(cycle)
        record = self.engine.cycle((EPOCH + cycle) * 1000)
        preempted = [
            {
                "workload": _name(preempt.workload),
                "clusterQueue": self._queue_of(preempt.workload),
                "reason": preempt.reason,
                "by": _name(preempt.by),
            }
            for preempt in record.preempted
        ]
        self._after(cycle, record)
        return before, record, preempted

    def _queue_of(self, key: str) -> str:
        admission = self.running[_name(key)].workload.admission
        return admission.cluster_queue if admission else ""

    def _lists(self, ask: Any) -> dict[str, list[str]]:
        lists = {queue: [_name(key) for key in ask(queue)] for queue in self.queues}
        return {queue: names for queue, names in lists.items() if names}

    def _before(self, cycle: int) -> dict[str, list[str]]:
        results: dict[str, list[str]] = {}
        for name in sorted(self.running):
            evicted = self.running[name].evicted
            if evicted is not None and evicted + 1 + self.delay <= cycle:
                self._complete_eviction(name)
                results.setdefault("evictionsCompleted", []).append(name)
        for name in sorted(self.running):
            run = self.running[name]
            runtime = self.runtimes.get(name)
            if runtime is not None and run.evicted is None and cycle >= run.since + runtime:
                self._finish(name)
                results.setdefault("finished", []).append(name)
        while self.events and self.events[0]["at"] <= cycle:
            event = self.events.pop(0)
            kind, name = self._happen(event)
            results.setdefault(kind, []).append(name)
        return results

    def _complete_eviction(self, name: str) -> None:
        workload = replace(
            self.running.pop(name).workload, admission=None, admitted=False, reserved_at=0, requeued=True
        )
        self.waiting[name] = workload
        self.engine.observe(Put(workload))

    def _finish(self, name: str) -> None:
        self.engine.observe(Put(replace(self.running.pop(name).workload, finished=True)))

    def _happen(self, event: Json) -> tuple[str, str]:
        match event["op"]:
            case "create":
                self._create(event["workload"])
                return "created", event["workload"]["name"]
            case "updateClusterQueue":
                # an unchanged content is a new version of the object, too
                updated = replace(_cluster_queue(event["clusterQueue"]), labels={"updated": str(event["at"])})
                self.engine.observe(Put(updated))
                return "updated", event["clusterQueue"]["name"]
            case "finish":
                name = event["name"]
                if name not in self.running or self.running[name].evicted is not None:
                    return "ignored", name
                self._finish(name)
                return "finished", name
            case "delete":
                name = event["name"]
                known = self.running.pop(name).workload if name in self.running else self.waiting.pop(name, None)
                if known is None:
                    return "ignored", name
                self.engine.observe(Gone(Workload, known.key))
                return "deleted", name
            case other:
                raise ValueError(f"events.op: unknown operation {other!r}")

    def _after(self, cycle: int, record: CycleRecord) -> None:
        now = (EPOCH + cycle) * 1000
        for admit in record.reserved:
            workload = replace(
                self.waiting.pop(_name(admit.workload)),
                admission=admit.admission,
                admitted=True,
                reserved_at=now,
                admitted_at=now,
                evicted="",
                preempted="",
                requeued=None,
            )
            self.running[workload.name] = Running(workload, cycle)
            self.engine.observe(Put(workload))
        for preempt in record.preempted:
            run = self.running[_name(preempt.workload)]
            run.evicted = cycle
            run.workload = replace(run.workload, evicted="Preempted", evicted_at=now, preempted=preempt.reason)
            self.engine.observe(Put(run.workload))

    # --- the end ------------------------------------------------------------------------------------------------------

    def _note_idleness(self, record: CycleRecord, lists: Json) -> None:
        """A cycle is idle if nothing happened in it, nothing is in progress or ahead, and the queues are as before it."""
        busy = (
            record.reserved
            or record.preempted
            or self.events
            or any(run.evicted is not None or name in self.runtimes for name, run in self.running.items())
            or lists != self.lists
        )
        self.idle = 0 if busy else self.idle + 1
        self.lists = lists

    def end(self) -> Iterator[tuple[str, Any]]:
        quiet = self.idle >= (self.scenario.get("config") or {}).get("idleCycles", 0)
        yield "stop", "quiescent" if quiet else "maxCycles"
        yield "final", {queue: self._holders(queue) for queue in self.queues}
        yield "usage", {queue: self.engine.usage(queue) for queue in self.queues}

    def _holders(self, queue: str) -> list[Json]:
        found: list[Json] = []
        for name in sorted(self.running):
            admission = self.running[name].workload.admission
            if admission is not None and admission.cluster_queue == queue:
                found.append({"workload": name, "clusterQueue": queue, "podSets": _pod_sets(admission)})
        return found


def _pod_sets(admission: Admission) -> list[Json]:
    return [{"name": p.name, "count": p.count, "flavors": dict(p.flavors)} for p in admission.pod_sets]


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def _requeued(entry: Requeued) -> Json:
    return {
        "workload": _name(entry.workload),
        "mode": entry.mode,
        "borrowing": entry.borrowing,
        "status": entry.status,
        "requeueReason": entry.requeue_reason,
        "reason": entry.reason,
        "flavors": {name: dict(flavors) for name, flavors in entry.flavors.items()},
        "counts": dict(entry.counts),
    }


# --- reading a scenario -----------------------------------------------------------------------------------------------


def _settings(config: Json) -> Settings:
    fair = config.get("fairSharing")
    strategies = tuple(fair.get("strategies") or ()) if fair is not None else ()
    return Settings(
        fair_sharing=None if fair is None else FairSharing(strategies) if strategies else FairSharing(),
        gates=config.get("featureGates") or {},
        pods_ready=None,
        merges_labels=True,
    )


def _flavor(raw: Json) -> Flavor:
    return Flavor(
        raw["name"],
        node_labels=raw.get("nodeLabels") or {},
        taints=tuple(Taint(t["key"], t.get("value") or "", t["effect"]) for t in raw.get("taints") or ()),
        tolerations=tolerations(raw),
    )


def _amount(resource: str, amount: int) -> int:
    return amount * 1000 if resource == "cpu" else amount


def _limit(resource: str, amount: int | None) -> int | None:
    return None if amount is None else _amount(resource, amount)


def _groups(raw: Sequence[Json] | None) -> tuple[ResourceGroup, ...]:
    return tuple(
        ResourceGroup(
            tuple(group["coveredResources"]),
            tuple(
                FlavorQuotas(
                    flavor["name"],
                    {
                        resource: Quota(
                            _amount(resource, quota.get("nominal") or 0),
                            _limit(resource, quota.get("borrowingLimit")),
                            _limit(resource, quota.get("lendingLimit")),
                        )
                        for resource, quota in flavor["resources"].items()
                    },
                )
                for flavor in group["flavors"]
            ),
        )
        for group in raw or ()
    )


def _weight(raw: Json) -> float:
    weight = raw.get("weight")
    return 1.0 if weight is None else float(weight)


def _cohort(raw: Json) -> Cohort:
    return Cohort(raw["name"], raw.get("parent") or "", _groups(raw.get("resourceGroups")), _weight(raw))


def _cluster_queue(raw: Json) -> ClusterQueue:
    fungibility = raw.get("flavorFungibility") or {}
    preemption = raw.get("preemption") or {}
    borrow = preemption.get("borrowWithinCohort") or {}
    return ClusterQueue(
        raw["name"],
        cohort=raw.get("cohort") or "",
        strategy=raw.get("queueingStrategy") or "BestEffortFIFO",
        groups=_groups(raw.get("resourceGroups")),
        fungibility=Fungibility(
            fungibility.get("whenCanBorrow") or "MayStopSearch",
            fungibility.get("whenCanPreempt") or "TryNextFlavor",
            fungibility.get("preference") or "",
        ),
        preemption=PreemptionPolicy(
            preemption.get("withinClusterQueue") or "Never",
            preemption.get("reclaimWithinCohort") or "Never",
            borrow.get("policy") or "Never",
            borrow.get("maxPriorityThreshold"),
        ),
        weight=_weight(raw),
    )


def _workload(raw: Json) -> Workload:
    admission = raw.get("admission")
    pod_sets = tuple(_pod_set(pod_set) for pod_set in raw["podSets"])
    return Workload(
        uid=raw["uid"],
        namespace=raw["namespace"],
        name=raw["name"],
        queue=raw["queue"],
        pod_sets=pod_sets,
        priority=raw.get("priority") or 0,
        created=raw["created"] * 1000,
        admission=_admission(admission, pod_sets) if admission else None,
        reserved_at=admission["reservedAt"] * 1000 if admission else 0,
        admitted=bool(admission),
    )


def _pod_set(raw: Json) -> PodSet:
    return PodSet(
        raw["name"],
        raw["count"],
        {resource: _amount(resource, amount) for resource, amount in (raw.get("requests") or {}).items()},
        min_count=raw.get("minCount"),
        node_selector=raw.get("nodeSelector") or {},
        tolerations=tolerations(raw),
        affinity=tuple(
            tuple(Expression(e["key"], e["operator"], tuple(e.get("values") or ())) for e in term)
            for term in raw.get("affinity") or ()
        ),
    )


def _admission(raw: Json, pod_sets: Sequence[PodSet]) -> Admission:
    requests = {pod_set.name: pod_set.requests for pod_set in pod_sets}
    return Admission(
        raw["clusterQueue"],
        tuple(
            PodSetAssignment(
                p["name"],
                p["count"],
                dict(p["flavors"]),
                {
                    resource: p["count"] * (1 if resource == "pods" else requests[p["name"]].get(resource, 0))
                    for resource in p["flavors"]
                },
            )
            for p in raw["podSets"]
        ),
    )
