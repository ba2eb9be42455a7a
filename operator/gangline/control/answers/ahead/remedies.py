"""Finds what would let a waiting job start earlier, by its author or an administrator: played forward, ranked by hours gained.

The engine decides in each rehearsal with all its rules, nodes and their health included: a remedy is offered only if the job then
starts earlier, and never because some arithmetic says that enough becomes free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from gangline.api import names, quantity
from gangline.control.answers.ahead import whatif
from gangline.control.answers.sight import Sight
from gangline.control.answers.source import EngineOutlooks, NoForecastsError, Source
from gangline.control.answers.workloads.reasons import parse
from gangline.control.forecasting.rehearsals import LEAST_GAIN, Rehearsal, Rehearsed
from gangline.engine.model import (
    Change,
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    Gone,
    Node,
    Put,
    Quota,
    ResourceGroup,
    Workload,
    WorkloadPods,
)
from gangline.kube import resources as kube
from gangline.kube.resources import Json

T = TypeVar("T", ClusterQueue, Cohort)

#: seconds for all rehearsals of one answer, of which it needs few: what is played is bounded by the number of changes
TIME: Final = 10.0
#: offers of one answer, and the holders whose end is tried
BEST: Final = 5
HOLDERS: Final = 3
USER: Final = "user"
ADMINISTRATOR: Final = "administrator"
#: the taint that a cluster gives to cordoned nodes
_CORDONED: Final = "node.kubernetes.io/unschedulable"


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change, as facts that replace others. Of remedies of one `kind` only the best is offered."""

    kind: str
    by: str
    change: str
    changes: tuple[Change, ...]


async def remedies(source: Source, foresight: EngineOutlooks, sight: Sight, jobs: Mapping[str, str], key: str) -> Json:
    """The expected start of a waiting workload, and the remedies. Raises NoForecastsError."""
    value = source.mirror.workload_value(key)
    if value is None:
        raise NoForecastsError("the workload cannot be read, so nothing is known of its start")
    tried = list(_tried(source, sight, jobs, value))
    wanted = [Rehearsal(key, ()), *(Rehearsal(key, each.changes, each.kind) for each in tried)]
    done = await foresight.rehearse(wanted, TIME, BEST)
    now, first = source.now(), done.first
    base = first.outlook.starts.get(key)
    offers = [
        found
        for remedy, each in zip(tried, done.outcomes[1:], strict=True)
        if each is not None and (found := _offer(remedy, each, first, key))
    ]
    return {
        "startsInSeconds": starts_in(first, key, now),
        "because": sight.text(base.because, jobs) if base is not None else "",
        "obstacle": sight.text(first.obstacle, jobs),
        "remedies": [
            {
                "kind": remedy.kind,
                "by": remedy.by,
                "change": remedy.change,
                "startsInSeconds": starts_in(after, key, now),
                "gainedHours": None if gained == float("inf") else gained / 3600,
            }
            for remedy, after, gained in _best(offers)
        ],
        "unexamined": done.unexamined,
    }


Offer = tuple[Remedy, Rehearsed, float]


def _offer(remedy: Remedy, after: Rehearsed, before: Rehearsed, key: str) -> Offer | None:
    then, base = after.outlook.starts.get(key), before.outlook.starts.get(key)
    if then is None:
        return None
    gained = float("inf") if base is None else base.p50 - then.p50
    return (remedy, after, gained / 1000) if gained >= LEAST_GAIN else None


def _best(offers: Sequence[Offer]) -> list[Offer]:
    """The best of each kind, by hours gained; of equal ones the earliest start, and what the author can do first."""

    def rank(offer: Offer) -> tuple[float, float, bool]:
        remedy, after, gained = offer
        return -gained, min(start.p50 for start in after.outlook.starts.values()), remedy.by != USER

    found: dict[str, Offer] = {}
    for offer in sorted(offers, key=rank):
        found.setdefault(offer[0].kind, offer)
    return list(found.values())[:BEST]


def starts_in(done: Rehearsed, key: str, now: int) -> Json | None:
    """When the workload starts, in seconds from now; None: not within the horizon."""
    start = done.outlook.starts.get(key)
    if start is None:
        return None
    return {"p50": (start.p50 - now) / 1000, "p90": None if start.p90 is None else (start.p90 - now) / 1000}


# --- what is tried ----------------------------------------------------------------------------------------------------


def _tried(source: Source, sight: Sight, jobs: Mapping[str, str], value: Workload) -> Iterator[Remedy]:
    facts = source.engine.facts()
    queues = {
        fact.item.name: fact.item for fact in facts if isinstance(fact, Put) and isinstance(fact.item, ClusterQueue)
    }
    cohorts = {fact.item.name: fact.item for fact in facts if isinstance(fact, Put) and isinstance(fact.item, Cohort)}
    route = source.mirror.local_queues.get(f"{value.namespace}/{value.queue}")
    queue = queues.get(route.spec.get("clusterQueue", "")) if route is not None else None
    yield from _own(source, value)
    yield from _ends(source, sight, jobs, value)
    if queue is not None:
        yield from _quota(source, sight, value, queue, cohorts)
        yield from _policies(sight, queue)
    yield from _uncordoned(source, queue)


#: kind of a job -> where its author says with how few pods it may start; other kinds have no such field
_LEAST_PODS: Final = {"GPUJob": "spec.minWorkers", "Job": f"annotation {names.MIN_PARALLELISM}"}


def _own(source: Source, value: Workload) -> Iterator[Remedy]:
    """Changes that the author can make: size, length, queue, priority."""
    if source.forecasts is not None and (forecast := source.forecasts.estimate(value.key)) is not None:
        original = whatif.Variant("", "as it is", value, forecast, source.forecasts.by_flavor(value.key))
        for variant in whatif.changed(source, original):
            yield Remedy(variant.kind, USER, variant.change, variant.rehearsal.changes)
    raw = source.mirror.workloads.get(value.key)
    field = _LEAST_PODS.get((raw.controller or {}).get("kind", "") if raw is not None else "")
    if field and len(value.pod_sets) == 1 and value.pod_sets[0].count > 1 and value.pod_sets[0].min_count is None:
        least = replace(value, pod_sets=(replace(value.pod_sets[0], min_count=1),))
        yield Remedy("fewer", USER, f"let it start with fewer pods ({field})", (Put(least),))
    classes = {
        name: found.get("value", 0) for name, found in source.mirror.objects[kube.WORKLOAD_PRIORITY_CLASSES].items()
    }
    for name, priority in sorted(classes.items(), key=lambda row: row[1]):
        if priority > value.priority:
            said = f"priority class {name} ({priority} instead of {value.priority})"
            yield Remedy("priority", USER, said, (Put(replace(value, priority=priority)),))
            break


def _ends(source: Source, sight: Sight, jobs: Mapping[str, str], value: Workload) -> Iterator[Remedy]:
    """The end of each of the largest holders."""
    explained = source.engine.explain(value.key)
    for key in explained.holders[:HOLDERS] if explained is not None else ():
        said = f"the end of {sight.name(key, jobs)}"
        yield Remedy("end", USER, said, (Gone(WorkloadPods, key), Gone(Workload, key)))


def _quota(
    source: Source, sight: Sight, value: Workload, queue: ClusterQueue, cohorts: Mapping[str, Cohort]
) -> Iterator[Remedy]:
    """More quota, or more of that of others, by what is missing of each flavor."""
    explained = source.engine.explain(value.key)
    missing: dict[str, dict[str, int]] = {}
    for o in parse(explained.message if explained is not None else "").obstacles:
        if o.kind in ("short", "too-big"):
            more = o.amount if o.kind == "short" else o.requested - o.amount
            missing.setdefault(o.flavor, {})[o.resource] = more
    name = sight.queue_name(queue.name)
    for flavor, amounts in missing.items():
        increase = ", ".join(f"+{quantity.format(n, resource)} {resource}" for resource, n in amounts.items())
        nominal = with_quota(queue, flavor, amounts, _more_nominal)
        yield Remedy(
            f"nominalQuota {flavor}",
            ADMINISTRATOR,
            f"nominalQuota of {flavor} in ClusterQueue {name} {increase}",
            (Put(nominal),),
        )
        if (raised := with_quota(queue, flavor, amounts, _may_borrow)) != queue:
            said = f"borrowingLimit of {flavor} in ClusterQueue {name} {increase}"
            yield Remedy(f"borrowingLimit {flavor}", ADMINISTRATOR, said, (Put(raised),))
        for cohort in _limiting(source, queue, flavor, amounts):
            if (
                cohort in cohorts
                and (wider := with_quota(cohorts[cohort], flavor, amounts, _may_borrow)) != cohorts[cohort]
            ):
                said = f"borrowingLimit of {flavor} in cohort {cohort} {increase}"
                yield Remedy(f"borrowingLimit {flavor} of {cohort}", ADMINISTRATOR, said, (Put(wider),))


def _limiting(source: Source, queue: ClusterQueue, flavor: str, amounts: Mapping[str, int]) -> Iterator[str]:
    """The cohorts whose borrowing limits bind."""
    for resource in amounts:
        known = source.engine.quota_limits(queue.name, flavor, resource)
        yield from (each.owner for each in (known.binding if known is not None else ()) if each.cohort)


def with_quota(owner: T, flavor: str, amounts: Mapping[str, int], change: Callable[[Quota, int], Quota]) -> T:
    """The queue or cohort with other quotas of one flavor: `change` makes each from the one before and the resource's amount."""

    def changed(quotas: FlavorQuotas) -> FlavorQuotas:
        if quotas.name != flavor:
            return quotas
        found = {r: change(quota, amounts[r]) if r in amounts else quota for r, quota in quotas.resources.items()}
        return replace(quotas, resources=found)

    groups = tuple(ResourceGroup(group.covered, tuple(map(changed, group.flavors))) for group in owner.groups)
    return replace(owner, groups=groups)


def _more_nominal(quota: Quota, more: int) -> Quota:
    return replace(quota, nominal=quota.nominal + more)


def _may_borrow(quota: Quota, more: int) -> Quota:
    limit = quota.borrowing_limit
    return quota if limit is None else replace(quota, borrowing_limit=limit + more)


def _policies(sight: Sight, queue: ClusterQueue) -> Iterator[Remedy]:
    """Changes to policies of a ClusterQueue that forbid it to reclaim its quota, to preempt, or to admit at all."""
    policy, name = queue.preemption, sight.queue_name(queue.name)
    if queue.stop_policy != "None":
        said = f"stopPolicy of ClusterQueue {name}: None instead of {queue.stop_policy}"
        yield Remedy("stopPolicy", ADMINISTRATOR, said, (Put(replace(queue, stop_policy="None")),))
    if queue.cohort and policy.reclaim_within_cohort == "Never":
        reclaims = replace(queue, preemption=replace(policy, reclaim_within_cohort="Any"))
        said = f"reclaimWithinCohort of ClusterQueue {name}: Any instead of Never"
        yield Remedy("reclaim", ADMINISTRATOR, said, (Put(reclaims),))
    if policy.within_cluster_queue == "Never":
        preempts = replace(queue, preemption=replace(policy, within_cluster_queue="LowerPriority"))
        said = f"withinClusterQueue of ClusterQueue {name}: LowerPriority instead of Never"
        yield Remedy("preemption", ADMINISTRATOR, said, (Put(preempts),))


def _uncordoned(source: Source, queue: ClusterQueue | None) -> Iterator[Remedy]:
    """The cordoned nodes of the queue's flavors, taken into use again."""
    offered = [flavor.name for group in queue.groups for flavor in group.flavors] if queue is not None else []
    flavors = [source.mirror.flavor(name) for name in offered]
    wanted = [(flavor.spec.get("nodeLabels") or {}) if flavor is not None else {} for flavor in flavors]
    cordoned: list[Node] = [
        node
        for node in source.engine.nodes().values()
        if node.unschedulable and any(labels.items() <= node.labels.items() for labels in wanted)
    ]
    if cordoned:
        named = ", ".join(sorted(node.name for node in cordoned)[:3]) + (" and more" if len(cordoned) > 3 else "")
        changes = tuple(Put(_in_use(node)) for node in cordoned)
        yield Remedy("uncordon", ADMINISTRATOR, f"kubectl uncordon {named}", changes)


def _in_use(node: Node) -> Node:
    """The node as it is after `kubectl uncordon`: schedulable, and without the taint that the cluster takes off then."""
    taints = tuple(taint for taint in node.taints if taint.key != _CORDONED)
    return replace(node, unschedulable=False, taints=taints)
