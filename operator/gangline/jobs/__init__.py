"""The job kinds that can be queued: those with a module of their own, and all others as `gangline.api.jobkinds` declares them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gangline.api import jobkinds
from gangline.api.jobkinds import Declaration
from gangline.jobs.base import JobKind, RunsOnOtherCluster
from gangline.jobs.declared import DeclaredKind, ExternalKind
from gangline.jobs.gpujob import GPUJobKind
from gangline.jobs.job import BatchJob
from gangline.jobs.jobset import JobSet
from gangline.jobs.pods.on_other_cluster import PodsOnOtherCluster
from gangline.jobs.serving import SENT
from gangline.kube.resources import Resource


def _declared(declarations: Iterable[Declaration]) -> list[JobKind]:
    return [DeclaredKind(each, each.behaviour) for each in declarations if each.behaviour is not None]


#: the kinds that every process knows
KINDS: Final[tuple[JobKind, ...]] = (BatchJob(), GPUJobKind(), JobSet(), *_declared(jobkinds.BUILT_IN))

#: all kinds by their resources: also those that the configuration declares
BY_RESOURCE: Final[dict[Resource, JobKind]] = {kind.resource: kind for kind in KINDS}
_BY_NAME: Final[dict[tuple[str, str], JobKind]] = {(kind.api_version, kind.kind): kind for kind in KINDS}


#: what has no field for the name of its controller, and may be sent to other clusters, since its pods wait here
_BY_GATES: Final[dict[Resource, RunsOnOtherCluster]] = {
    each.resource: each for each in (PodsOnOtherCluster(), *SENT.values())
}

#: kinds that are not queued here, and may be sent to other clusters
EXTERNAL: Final[dict[Resource, ExternalKind]] = {}


def declare(
    declarations: Sequence[Declaration], external: Sequence[Resource] = (), sent: Sequence[Resource] = ()
) -> None:
    """Know these kinds besides those that are built in, and no others. Called once, when a process has read its configuration.

    `external`: kinds of other controllers that bring Workloads of their own; `sent`: those that may be sent to other clusters.
    """
    jobkinds.declare(declarations, external)
    for kind in set(BY_RESOURCE.values()) - set(KINDS):
        del BY_RESOURCE[kind.resource], _BY_NAME[kind.api_version, kind.kind]
    for kind in _declared(declarations):
        BY_RESOURCE[kind.resource] = _BY_NAME[kind.api_version, kind.kind] = kind
    EXTERNAL.clear()
    EXTERNAL.update({each: ExternalKind(each) for each in sent})


def kind_of(api_version: str, kind: str) -> JobKind | None:
    """The job kind of objects with this `apiVersion` and `kind`; None for objects that cannot be queued."""
    return _BY_NAME.get((api_version, kind))


def on_other_cluster(resource: Resource) -> RunsOnOtherCluster | None:
    """The kind, if its jobs may be sent to other clusters."""
    kind = BY_RESOURCE.get(resource)
    if isinstance(kind, RunsOnOtherCluster) and kind.managed_by:
        return kind
    return EXTERNAL.get(resource) or _BY_GATES.get(resource)
