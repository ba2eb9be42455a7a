"""A trace's cluster and jobs as facts for the engine.

GPUs are requested in pods of one GPU: a job that fits on a node is this many pods that must share a host, a larger one is pods
of whole nodes and such a remainder. So the engine's tightest-fit rule counts free GPUs, as the reference replays do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from gangline.engine.model import (
    Change,
    ClusterQueue,
    Cohort,
    Flavor,
    FlavorQuotas,
    Item,
    LocalQueue,
    Millis,
    Namespace,
    Node,
    PodSet,
    Put,
    Quota,
    ResourceGroup,
    Settings,
    Topology,
    TopologyRequest,
    Workload,
)
from gangline.replay.replayed import TRUTH, ReplayedCluster, ReplayedJob, name_of

GPU: Final = "nvidia.com/gpu"
HOST: Final = "kubernetes.io/hostname"
FLAVOR: Final = "gpu"
#: the node label that says of which flavor a node is, where there are several
_FLAVOR_LABEL: Final = "example.com/flavor"
NAMESPACE: Final = "replay"
COHORT: Final = "cluster"

#: pods never become ready or unready in a replay: they run from admission to finish
SETTINGS: Final = Settings(pods_ready=None)

_ONE_HOST: Final = TopologyRequest(required=HOST)
_ANYWHERE: Final = TopologyRequest(unconstrained=True)


def facts(cluster: ReplayedCluster, queue: ClusterQueue, quotas: Mapping[str, int] | None) -> Iterator[Change]:
    """The facts of a trace without its jobs. With `quotas` every tenant has a queue like `queue` and lends its unused quota."""
    for item in _items(cluster, queue, quotas):
        yield Put(item)


def _items(cluster: ReplayedCluster, queue: ClusterQueue, quotas: Mapping[str, int] | None) -> Iterator[Item]:
    yield Namespace(NAMESPACE)
    if cluster.per_node:
        yield Topology("hosts", (HOST,))
        of_node = [_labels(flavor) for flavor, gpus in _flavors(cluster) for _ in range(gpus // cluster.per_node)]
        for number, labels in enumerate(of_node):
            name = node_name(number)
            yield Node(name, {HOST: name, **labels}, {GPU: cluster.per_node, "pods": 2 * cluster.per_node})
    for flavor, _ in _flavors(cluster):
        yield Flavor(flavor, _labels(flavor), topology="hosts" if cluster.per_node else "")
    if quotas is None:
        yield replace(queue, groups=_groups(_flavors(cluster)))
        yield LocalQueue(NAMESPACE, queue.name, queue.name)
        return
    yield Cohort(COHORT)
    for tenant, nominal in sorted(quotas.items()):
        name = queue_of(tenant)
        yield replace(queue, name=name, cohort=COHORT, groups=_groups(((FLAVOR, nominal),)))
        yield LocalQueue(NAMESPACE, name, name)


def _flavors(cluster: ReplayedCluster) -> tuple[tuple[str, int], ...]:
    return cluster.flavors or ((FLAVOR, cluster.gpus),)


def _labels(flavor: str) -> dict[str, str]:
    return {} if flavor == FLAVOR else {_FLAVOR_LABEL: flavor}


def _groups(flavors: Iterable[tuple[str, int]]) -> tuple[ResourceGroup, ...]:
    return (ResourceGroup((GPU,), tuple(FlavorQuotas(flavor, {GPU: Quota(gpus)}) for flavor, gpus in flavors)),)


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def node_number(name: str) -> int:
    return int(name[-5:])


def queue_of(tenant: str) -> str:
    return f"tenant-{tenant or 'none'}"


def quotas_by_use(jobs: Iterable[ReplayedJob], cluster: ReplayedCluster, tenants: Iterable[str]) -> dict[str, int]:
    """The cluster's GPUs shared among the tenants in proportion to the GPU time that they requested, whole nodes at a time."""
    asked: dict[str, float] = dict.fromkeys(tenants, 0.0)
    for job in jobs:
        asked[job.tenant] = asked.get(job.tenant, 0.0) + job.gpus * job.duration
    unit = cluster.per_node or 1
    units, total = cluster.gpus // unit, sum(asked.values()) or 1.0
    exact = {tenant: units * use / total for tenant, use in asked.items()}
    shares = {tenant: int(share) for tenant, share in exact.items()}
    left = units - sum(shares.values())
    for tenant in sorted(exact, key=lambda t: (shares[t] - exact[t], t))[:left]:  # the largest remainders
        shares[tenant] += 1
    return {tenant: share * unit for tenant, share in shares.items()}


class Workloads:
    """Workloads of jobs; gangs of one size share their pod sets."""

    def __init__(self, cluster: ReplayedCluster, queue: str, *, by_tenant: bool, ranked: bool) -> None:
        self._cluster = cluster
        self._queue = queue
        self._by_tenant = by_tenant
        self._ranked = ranked  # priorities by true duration, the shortest highest
        self._pod_sets: dict[int, tuple[PodSet, ...]] = {}

    def of(self, job: ReplayedJob) -> Workload:
        name = name_of(job.number)
        pod_sets = self._pod_sets.get(job.gpus)
        if pod_sets is None:
            pod_sets = self._pod_sets[job.gpus] = tuple(_pod_sets(job.gpus, self._cluster.per_node))
        return Workload(
            uid=name,
            namespace=NAMESPACE,
            name=name,
            queue=queue_of(job.tenant) if self._by_tenant else self._queue,
            pod_sets=pod_sets,
            priority=-job.duration // 1000 if self._ranked else 0,
            created=job.submit,
            checkpoint_seconds=_seconds(job.saves if job.checkpoint == TRUTH else job.checkpoint),
        )


def _seconds(millis: Millis | None) -> float | None:
    return None if millis is None else millis / 1000


def _pod_sets(gpus: int, per_node: int) -> Iterator[PodSet]:
    if not per_node:
        yield PodSet("main", 1, {GPU: gpus})
        return
    nodes, rest = divmod(gpus, per_node)
    if nodes:
        yield PodSet("nodes", nodes, {GPU: per_node}, topology=_ANYWHERE)
    if rest:
        yield PodSet("rest", rest, {GPU: 1}, topology=_ONE_HOST)
