"""Kueue's objects: whether Gangline can read them, and what in them it does not do."""

from __future__ import annotations

import asyncio
from typing import Final

from gangline.api import names
from gangline.api.admission import multikueue as multikueue_rules
from gangline.api.convert.conversion import ConversionError, convert
from gangline.api.read.configuration import Configuration
from gangline.api.read.reading import ParseError
from gangline.api.schema.kinds import KINDS
from gangline.console.doctor.changeover import settings
from gangline.console.doctor.cluster import ClusterReads, failure, ok, some, warning
from gangline.console.doctor.examination import Findings
from gangline.control.answers.workloads.words import counted
from gangline.control.checks.provisioning import activity
from gangline.control.feed.watched_kinds import READERS
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource

_OLD: Final = "v1beta1"
_STORED: Final = [resource for resource in READERS if resource.group == names.GROUP and resource is not kube.WORKLOADS]


async def served_version(cluster: ClusterReads, resource: Resource) -> Resource | None:
    """The kind in v1beta2, or in v1beta1 where that is all that Kueue serves; None without it."""
    for version in (resource.version, _OLD):
        candidate = resource._replace(version=version)
        if await cluster.serves(candidate):
            return candidate
    return None


async def definitions(cluster: ClusterReads) -> Findings:
    """Kueue's CRDs: which versions are served and stored."""
    step = "gangline admin crds | kubectl apply --server-side --force-conflicts -f - (step 2)"
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
        yield ok(f"{counted(len(crds), 'CRD')} of Kueue can stay; `gangline admin crds` adds QueuePolicy and GPUJob")


def _serves(crd: Json, version: str) -> bool:
    return any(row.get("name") == version and row.get("served") for row in crd["spec"]["versions"])


async def readable(cluster: ClusterReads) -> Findings:
    """Check that every object is read as the operator reads it, except Workloads."""
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


async def admission_checks(cluster: ClusterReads) -> Findings:
    checks = await cluster.list(kube.ADMISSION_CHECKS)
    for controller in sorted({_controller(check) for check in checks}):
        mine = [check["metadata"]["name"] for check in checks if _controller(check) == controller]
        if controller == activity.CONTROLLER:
            yield ok(f"{some(mine)} ({controller}): Gangline makes the requests")
        elif controller == multikueue_rules.CONTROLLER:
            yield ok(f"{some(mine)} ({controller}): Gangline sends their workloads to the clusters")
        else:
            yield ok(f"{controller} decides on {some(mine)}, as before")
    if not checks:
        yield ok("there are none")


def _controller(check: Json) -> str:
    return str((check.get("spec") or {}).get("controllerName"))


async def cluster_queues(cluster: ClusterReads) -> Findings:
    queues = await cluster.list(kube.CLUSTER_QUEUES)
    yield ok(f"{counted(len(queues), 'ClusterQueue')}: quotas, cohorts, fair sharing and preemption apply as they are")


async def multikueue(cluster: ClusterReads) -> Findings:
    """The clusters that workloads are sent to: how each is reached."""
    served = await served_version(cluster, kube.MULTI_KUEUE_CLUSTERS)
    clusters = await cluster.list(served) if served is not None else []
    sources = {row["metadata"]["name"]: _source(row) for row in clusters}
    if profiles := [name for name, source in sources.items() if source.get("clusterProfileRef")]:
        async for finding in _profiles(profiles, await settings.readable(cluster)):
            yield finding
    secrets = sorted({_location(source) for source in sources.values() if _is_secret(source)})
    if secrets:
        granted = " ".join(f"--cluster-secret {name}" for name in secrets)
        yield warning(
            f"{some(secrets)}: the operator reads only Secrets that are granted",
            f"gangline admin rbac {granted}",
            secrets,
        )
    if not sources:
        yield ok("there are no other clusters")


async def _profiles(clusters: list[str], chosen: Configuration | None) -> Findings:
    """The clusters that are reached by ClusterProfiles."""
    if chosen is None or not chosen.multikueue.profiles:
        detail = f"{some(clusters)}: with a ClusterProfile, and inactive while the gate MultiKueueClusterProfile is off"
        yield warning(detail, "set it in the file, under featureGates", clusters)
        return
    detail = f"{some(clusters)}: the operator reads ClusterProfiles only where that is granted"
    yield warning(detail, "gangline admin rbac --config FILE, with this configuration", clusters)
    if programs := sorted({each.command for each in chosen.multikueue.access_providers or ()}):
        detail = f"{some(programs)}: run in Gangline's operator now"
        yield warning(detail, "mount them there as in Kueue's Deployment: docs/multikueue.md", programs)


def _source(row: Json) -> Json:
    """The part of a MultiKueueCluster that says how the cluster is reached, in either version."""
    spec = row.get("spec") or {}
    return spec.get("clusterSource") or spec


def _is_secret(source: Json) -> bool:
    return bool(_location(source)) and (source.get("kubeConfig") or {}).get("locationType", "Secret") == "Secret"


def _location(source: Json) -> str:
    return str((source.get("kubeConfig") or {}).get("location") or "")


async def topology(cluster: ClusterReads) -> Findings:
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
