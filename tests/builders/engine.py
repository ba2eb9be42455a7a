"""Short words for facts, and a world that does at once what the engine decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.engine.states import check_states

from gangline.engine.engine import Engine
from gangline.engine.model import (
    Admit,
    AskChecks,
    CheckState,
    ClusterQueue,
    Cohort,
    CompleteAdmission,
    Decision,
    Evict,
    Flavor,
    FlavorQuotas,
    Gone,
    LocalQueue,
    PodSet,
    Preempt,
    Put,
    Quota,
    ReportPending,
    Requeue,
    ResourceGroup,
    Settings,
    Swap,
    Warn,
    Withdraw,
    Workload,
)

GPU = "nvidia.com/gpu"
#: 2026-01-01, in milliseconds
START = 1_767_225_600_000


def group(flavors: Mapping[str, Mapping[str, int | Quota]]) -> ResourceGroup:
    """`{flavor: {resource: quota or nominal}}`; all flavors have the same resources."""
    covered = tuple(next(iter(flavors.values())))
    return ResourceGroup(
        covered,
        tuple(
            FlavorQuotas(name, {r: q if isinstance(q, Quota) else Quota(q) for r, q in quotas.items()})
            for name, quotas in flavors.items()
        ),
    )


def cluster_queue(name: str, gpus: int | Quota = 8, cohort: str = "", **fields: Any) -> ClusterQueue:
    groups = fields.pop("groups", (group({"a100": {GPU: gpus}}),))
    return ClusterQueue(name, cohort=cohort, groups=groups, **fields)


def cohort(name: str, gpus: int | Quota = 0, parent: str = "") -> Cohort:
    return Cohort(name, parent, (group({"a100": {GPU: gpus}}),) if gpus else ())


def gang(name: str, gpus: int = 1, queue: str = "q", pods: int = 1, **fields: Any) -> Workload:
    """`pods` pods of `gpus` each; created at START plus the number in its name, if there is one, in seconds."""
    number = int("".join(filter(str.isdigit, name)) or 0)
    pod_sets = fields.pop("pod_sets", (PodSet("main", pods, {GPU: gpus}),))
    created = fields.pop("created", START + number * 1000)
    return Workload(f"uid-{name}", "team", name, queue, pod_sets, created=created, **fields)


class EngineWorld:
    """The cluster around an engine: what is decided happens, evictions when `complete_evictions` says so."""

    def __init__(self, *items: Any, settings: Settings | None = None) -> None:
        self.engine = Engine(settings or Settings(pods_ready=None))
        self.workloads: dict[str, Workload] = {}
        self.now = START + 1_000_000
        self.put(Flavor("a100"), *items)

    def put(self, *items: Any) -> None:
        for item in items:
            if isinstance(item, Workload):
                self.workloads[item.key] = item
            elif isinstance(item, ClusterQueue) and not any(
                queue.cluster_queue == item.name for queue in self.engine._store.local_queues.values()
            ):
                self.engine.observe(Put(LocalQueue("team", item.name, item.name)))
            self.engine.observe(Put(item))

    def decide(self, *, lost: Iterable[str] = (), room: int | None = None) -> list[Decision]:
        """One second later: decide, and write what was decided, except for the workloads in `lost`."""
        self.now += 1000
        decisions = self.engine.decide(self.now, room)
        for decision in decisions:
            if not isinstance(decision, Warn) and decision.workload not in lost:
                self.write(decision)
        check_states(self.engine)
        return decisions

    def write(self, decision: Decision) -> None:
        workload = self.workloads[decision.workload]
        written = _written(workload, decision, self.now)
        if written != workload:
            self.put(written)

    def change(self, name: str, **fields: Any) -> None:
        self.put(replace(self.workloads[f"team/{name}"], **fields))

    def finish(self, name: str) -> None:
        workload = self.workloads.pop(f"team/{name}")
        self.engine.observe(Put(replace(workload, finished=True)))

    def delete(self, name: str) -> None:
        self.engine.observe(Gone(Workload, self.workloads.pop(f"team/{name}").key))

    def evicted(self) -> list[str]:
        """Those that still hold quota though their stop was requested."""
        return sorted(w.name for w in self.workloads.values() if w.admission is not None and w.evicted)

    def restart(self) -> None:
        """The operator dies; another one reads everything anew."""
        old = self.engine._store
        self.engine = Engine(old.settings)
        tables = (
            old.flavors,
            old.topologies,
            old.checks,
            old.cohorts,
            old.cluster_queues,
            old.local_queues,
            old.nodes,
            old.node_cards,
            old.forecasts,
            old.quotas_ahead.known,
            old.profiles,
            old.priors,
        )
        for table in (*tables, self.workloads):
            for item in table.values():
                self.engine.observe(Put(item))

    def complete_evictions(self) -> None:
        for name in self.evicted():
            workload = self.workloads[f"team/{name}"]
            at_once = workload.evicted in ("Preempted", "NodeFailures")
            self.change(name, admission=None, admitted=False, reserved_at=0, requeued=at_once)

    def running(self) -> list[str]:
        return sorted(w.name for w in self.workloads.values() if w.admission is not None and not w.evicted)


def _written(workload: Workload, decision: Decision, now: int) -> Workload:
    match decision:
        case Admit(admission=admission, admitted=admitted, checks=checks):
            return replace(
                workload,
                admission=admission,
                reserved_at=now,
                admitted=admitted,
                admitted_at=now if admitted else 0,
                evicted="",
                preempted="",
                moved_for="",
                requeued=None,
                checks=tuple(CheckState(name) for name in checks),
            )
        case AskChecks(checks=names):
            known = {check.name: check for check in workload.checks}
            return replace(workload, checks=tuple(known.get(name, CheckState(name)) for name in names))
        case CompleteAdmission():
            return replace(workload, admitted=True, admitted_at=now)
        case Preempt(reason=reason):
            count = workload.preemptions + 1
            fields = {"evicted": "Preempted", "evicted_at": now, "preempted": reason, "preemptions": count}
            fields["moved_for"] = decision.by if reason == "Moved" else ""
            return replace(workload, **fields, **_forgotten(workload))
        case Evict():
            return replace(
                workload,
                active=workload.active and not decision.deactivate,
                evicted=decision.reason,
                evicted_at=now,
                requeue_at=decision.requeue_at,
                requeue_count=decision.requeue_count or workload.requeue_count,
                **_forgotten(workload),
            )
        case Withdraw():
            return replace(workload, admission=None, reserved_at=0)
        case Requeue():
            return replace(workload, requeued=True, requeue_at=None)
        case Swap(admission=admission):
            return replace(workload, admission=admission, unhealthy_nodes=())
        case _:
            return workload


def _forgotten(workload: Workload) -> dict[str, Any]:
    """What was said of an admission does not hold for the next."""
    return {"checks": tuple(replace(check, state="Pending") for check in workload.checks), "unhealthy_nodes": ()}


def of(decisions: Sequence[Decision], kind: type) -> list[str]:
    """The names of the workloads that decisions of one kind are about."""
    return [decision.workload.partition("/")[2] for decision in decisions if isinstance(decision, kind)]


def reported_pending(decisions: Sequence[Decision]) -> dict[str, ReportPending]:
    return {d.workload.partition("/")[2]: d for d in decisions if isinstance(d, ReportPending)}
