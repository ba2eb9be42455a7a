"""Kinds that make pods and are not queued themselves: a queue label on one of them has no effect but a warning.

Deployments are among them, since the configuration may leave them out. All are kinds of Kubernetes itself, which no cluster
lacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gangline import bounded
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


# --- kinds of other controllers that bring Workloads of their own (`integrations.externalFrameworks`) -----------------
#
# Their objects are neither suspended nor started here. But they own others: what a queued one creates is not queued again, and
# is held until its Workload is admitted.


#: of `Kind.version.group`
LONGEST_NAME: Final = 384
_NAME: Final = re.compile(
    r"([A-Z][A-Za-z0-9]{0,62})\.(v[0-9]{1,4}(?:(?:alpha|beta)[0-9]{1,4})?)\."
    r"([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*)"
)


#: what else Kueue takes: a resource, with or without a version, such as `pipelineruns.v1.tekton.dev`
_ANY: Final = re.compile(r"[A-Za-z0-9-]{1,63}\.[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})+")


class NoKindError(ValueError):
    """A name that Kueue takes for a kind that no object has: it has no effect there either."""


def _too_long(text: str) -> ValueError:
    return ValueError(f"{bounded.shown(text)} is longer than {LONGEST_NAME} characters")


@bounded.parser(LONGEST_NAME, refuse=_too_long, worst=("A.v1.", "a.", "a-"))
def kind(text: str) -> Resource:
    """`Kind.version.group`, as Kueue's configuration writes it. Raises ValueError, NoKindError for what Kueue takes besides."""
    found = _NAME.fullmatch(text)
    if found is None and _ANY.fullmatch(text):
        raise NoKindError(f"{text} has no effect: write the kind as its objects have it, Kind.version.group")
    if found is None:
        raise ValueError(f"{bounded.shown(text)} is not of the form Kind.version.group, such as Sandbox.v1.example.com")
    return Resource(found[3], found[2], _plural(found[1].lower()), kind=found[1])


def _plural(singular: str) -> str:
    """The name of a kind's resource, as Kubernetes guesses it."""
    if singular.endswith("s"):
        return f"{singular}es"
    return f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"
