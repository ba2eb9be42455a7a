"""Kinds that make pods and are not queued themselves: a queue label on one of them has no effect, and its author is told so.

Deployments are among them, since the configuration may leave them out. All are kinds of Kubernetes itself, which no cluster
lacks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gangline.api.jobkinds.declaration import Declaration
from gangline.kube.resources import Resource

_CANDIDATES: Final = (
    Resource("apps", "v1", "deployments", kind="Deployment"),
    Resource("apps", "v1", "daemonsets", kind="DaemonSet"),
    Resource("apps", "v1", "replicasets", kind="ReplicaSet"),
    Resource("", "v1", "replicationcontrollers", kind="ReplicationController"),
    Resource("batch", "v1", "cronjobs", kind="CronJob"),
)


def others(known: Iterable[Declaration]) -> tuple[Resource, ...]:
    """The candidates that are not among the `known` kinds. A kind whose pods wait in its place counts as not known: it is queued
    only where it is listed.
    """
    queued = {each.identity for each in known if not each.by_pods}
    return tuple(each for each in _CANDIDATES if (each.group, each.kind) not in queued)
