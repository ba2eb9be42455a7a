"""Checks which flavors can get more nodes: by what cluster autoscalers publish, or by an annotation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gangline.api import names
from gangline.api.read import autoscalers
from gangline.api.read.autoscalers import KarpenterNodePool, NodeGroup
from gangline.api.read.reading import ParseError
from gangline.console.doctor.cluster import ClusterReads, ok, some, warning
from gangline.console.doctor.examination import Findings
from gangline.control.answers.workloads.words import counted
from gangline.kube import resources as kube
from gangline.kube.resources import Json

_STEP: Final = f'if one does: kubectl annotate resourceflavor NAME {names.AUTOSCALED}="true"'


async def growing(cluster: ClusterReads, flavors: Iterable[Json], nodes: Iterable[Json]) -> set[str]:
    """The flavors for which more nodes can come: their annotation says so, or what an autoscaler publishes."""
    now, _ = await cluster.server_clock()
    groups, pools = await _groups(cluster, now), await _pools(cluster)
    named = [(node["metadata"]["name"], node["metadata"].get("labels") or {}) for node in nodes]
    found: set[str] = set()
    for flavor in flavors:
        selected = (flavor.get("spec") or {}).get("nodeLabels") or {}
        declared = (flavor["metadata"].get("annotations") or {}).get(names.AUTOSCALED)
        mine = [(node, labels) for node, labels in named if selected.items() <= labels.items()]
        if declared == "true" or (declared is None and selected and autoscalers.growth(selected, mine, groups, pools)):
            found.add(flavor["metadata"]["name"])
    return found


async def flavors(cluster: ClusterReads) -> Findings:
    """Check of what bounds each flavor with node labels: its nodes, or quota alone."""
    now, _ = await cluster.server_clock()
    groups, pools = await _groups(cluster, now), await _pools(cluster)
    listed = await cluster.list(kube.NODES)
    nodes = [(node["metadata"]["name"], node["metadata"].get("labels") or {}) for node in listed]
    fixed, managed = list[str](), dict[str, str]()
    said = False
    for flavor in await cluster.list(kube.RESOURCE_FLAVORS):
        name, spec = flavor["metadata"]["name"], flavor.get("spec") or {}
        selected, declared = (
            spec.get("nodeLabels") or {},
            (flavor["metadata"].get("annotations") or {}).get(names.AUTOSCALED),
        )
        mine = [(node, found) for node, found in nodes if selected.items() <= found.items()]
        if not selected or spec.get("topologyName") or (declared is None and not mine):
            continue
        if declared is not None:
            said = True
            yield ok(
                f"{name}: {names.AUTOSCALED} says {declared}: {'quota' if declared == 'true' else 'its nodes'} bounds it"
            )
        elif by := autoscalers.growth(selected, mine, groups, pools):
            said = True
            yield ok(f"{name}: nodes come by {by}, so quota bounds it")
        elif pool := autoscalers.pool_of(mine):
            managed[name] = pool
        else:
            fixed.append(name)
    if managed:
        pool = next(iter(managed.values()))
        detail = (
            f"{some(list(managed))}: bounded by the nodes that there are, which are of managed pools ({pool}). "
            "No autoscaler is seen that could make more: where one does, jobs wait for nodes that nobody asks for"
        )
        yield warning(detail, _STEP, list(managed))
    if fixed:
        yield ok(f"{some(fixed)}: the nodes that there are bound {'it' if len(fixed) == 1 else 'them'}, besides quota")
    if not said and not managed and not fixed:
        yield ok("quota alone bounds all flavors: none has nodes by its labels")
    elif groups or pools:
        yield ok(f"{counted(len(groups), 'node group')} of the cluster autoscaler, {counted(len(pools), 'NodePool')}")


async def _groups(cluster: ClusterReads, now: int) -> tuple[NodeGroup, ...]:
    found = await cluster.get(kube.CONFIG_MAPS, *autoscalers.STATUS_MAP)
    return autoscalers.node_groups(found, now) if found is not None else ()


async def _pools(cluster: ClusterReads) -> list[KarpenterNodePool]:
    found: list[KarpenterNodePool] = []
    for row in await cluster.list(kube.NODE_POOLS):
        try:
            found.append(autoscalers.node_pool(row))
        except ParseError:
            continue
    return found
