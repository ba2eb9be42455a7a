"""Kueue's objects: whether Gangline can read them, and what in them it does not do."""

from __future__ import annotations

import asyncio
from typing import Final

from gangline.api import names
from gangline.api.convert.conversion import ConversionError, convert
from gangline.api.read.reading import ParseError
from gangline.api.schema.kinds import KINDS
from gangline.console.doctor.cluster import Cluster
from gangline.console.doctor.examination import Findings
from gangline.console.doctor.finding import counted, failure, ok, some, warning
from gangline.control.mirror.watched_kinds import READERS
from gangline.control.provisioning import activity
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource

_OLD: Final = "v1beta1"
_STORED: Final = [resource for resource in READERS if resource.group == names.GROUP and resource is not kube.WORKLOADS]
#: admission checks that only Kueue's own controllers decide on
_KUEUES_CHECKS: Final = (f"{names.GROUP}/multikueue",)
#: kinds of Kueue that Gangline does not have
FOREIGN: Final = tuple(
    Resource(names.GROUP, version, plural, namespaced=False)
    for plural in ("multikueueconfigs", "multikueueclusters")
    for version in ("v1beta2", _OLD)
)


async def served_version(cluster: Cluster, resource: Resource) -> Resource | None:
    """The kind in v1beta2, or in v1beta1 where that is all that Kueue serves; None without it."""
    for version in (resource.version, _OLD):
        candidate = resource._replace(version=version)
        if await cluster.serves(candidate):
            return candidate
    return None


async def definitions(cluster: Cluster) -> Findings:
    """Kueue's CRDs: which versions are served and stored."""
    step = "gangline crds | kubectl apply --server-side --force-conflicts -f - (step 2)"
    found = await asyncio.gather(
        *(cluster.get(kube.CUSTOM_RESOURCE_DEFINITIONS, None, kind.name) for kind in KINDS if kind.group == names.GROUP)
    )
    crds = [crd for crd in found if crd is not None]
    if not crds:
        yield failure("no kind of Kueue is installed: there is nothing to take over", "install Gangline: docs/cli.md")
        return
    old = [crd["metadata"]["name"] for crd in crds if not _serves(crd, "v1beta2")]
    if old:
        yield warning(f"{some(old)} have no v1beta2, which Gangline reads", step, old)
    for crd in crds:
        stored = (crd.get("status") or {}).get("storedVersions") or []
        if gone := [version for version in stored if version not in ("v1beta1", "v1beta2")]:
            detail = f"objects of {crd['metadata']['name']} are stored as {some(gone)}, which no version here reads"
            yield failure(detail, "write each object once with Kueue, then remove it from status.storedVersions", gone)
    twice = [crd["metadata"]["name"] for crd in crds if len((crd.get("status") or {}).get("storedVersions") or ()) > 1]
    if twice:
        yield ok(f"objects of {some(twice)} are stored in both versions: both are read")
    if not old:
        yield ok(f"{counted(len(crds), 'CRD')} of Kueue can stay; `gangline crds` adds QueuePolicy and GPUJob")


def _serves(crd: Json, version: str) -> bool:
    return any(row.get("name") == version and row.get("served") for row in crd["spec"]["versions"])


async def readable(cluster: Cluster) -> Findings:
    """Every object but Workloads is read as the operator reads it."""
    count, unreadable = 0, list[str]()
    for resource in _STORED:
        served = await served_version(cluster, resource)
        for obj in await cluster.list(served) if served is not None else ():
            count += 1
            where = f"{resource.kind} {obj['metadata']['name']}"
            try:
                READERS[resource][1](convert(obj, resource.version) if served != resource else obj)
            except (ParseError, ConversionError) as error:
                unreadable.append(where)
                yield failure(f"{where}: {error}", "correct the field: Gangline leaves this object alone", [where])
    if not unreadable:
        yield ok(f"all {count} can be read, and stay as they are")


async def admission_checks(cluster: Cluster) -> Findings:
    checks = await cluster.list(kube.ADMISSION_CHECKS)
    used = {name for queue in await cluster.list(kube.CLUSTER_QUEUES) for name in _checks(queue)}
    for controller in sorted({_controller(check) for check in checks}):
        mine = [check["metadata"]["name"] for check in checks if _controller(check) == controller]
        in_use = [name for name in mine if name in used]
        if controller == activity.CONTROLLER:
            yield ok(f"{some(mine)} ({controller}): Gangline makes the requests")
        elif controller not in _KUEUES_CHECKS:
            yield ok(f"{controller} decides on {some(mine)}, as before")
        elif in_use:
            detail = (
                f"{some(in_use)}: only Kueue's controller decides on them ({controller}); workloads would wait for ever"
            )
            yield failure(detail, "take them out of their ClusterQueues, or keep Kueue for these queues", in_use)
        else:
            yield warning(f"{some(mine)} ({controller}) are not used by any ClusterQueue", "delete them", mine)
    if not checks:
        yield ok("there are none")


def _controller(check: Json) -> str:
    return str((check.get("spec") or {}).get("controllerName"))


def _checks(queue: Json) -> list[str]:
    rows = ((queue.get("spec") or {}).get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    return [row["name"] for row in rows]


async def cluster_queues(cluster: Cluster) -> Findings:
    queues = await cluster.list(kube.CLUSTER_QUEUES)
    several = [row["metadata"]["name"] for row in queues if (row.get("spec") or {}).get("concurrentAdmissionPolicy")]
    if several:
        advice = "a workload gets one flavor, and is not moved to a better one later"
        yield warning(f"{some(several)}: concurrentAdmissionPolicy has no effect", advice, several)
    yield ok(f"{counted(len(queues), 'ClusterQueue')}: quotas, cohorts, fair sharing and preemption apply as they are")


async def foreign_kinds(cluster: Cluster) -> Findings:
    found: dict[str, list[str]] = {}
    for resource in FOREIGN:
        if resource.plural not in found and await cluster.serves(resource):
            found[resource.plural] = [row["metadata"]["name"] for row in await cluster.list(resource)]
    for plural, objects in found.items():
        if objects:
            yield warning(
                f"{counted(len(objects), plural.removesuffix('s'))} ({some(objects)}): nobody reads them", "", objects
            )
    if not any(found.values()):
        yield ok("there are no objects of these kinds")


async def topology(cluster: Cluster) -> Findings:
    topologies = [row["metadata"]["name"] for row in await cluster.list(kube.TOPOLOGIES)]
    flavors = await cluster.list(kube.RESOURCE_FLAVORS)
    placed = [row["metadata"]["name"] for row in flavors if (row.get("spec") or {}).get("topologyName")]
    if not topologies:
        yield ok("not used")
        return
    yield ok(
        f"{counted(len(placed), 'flavor')} with a topology ({some(topologies)}): requests and assignments are read as they are"
    )
    yield warning("lost nodes: Gangline replaces several nodes of a gang at once, Kueue one", "see docs/hotswap.md")
