"""The job kinds, each declared once: one record says how a kind is suspended, where its pods are, and what its status says.

From the record follow the kind's webhooks and their conditions, its defaulting and validation, the rights of both processes,
what the operator watches, the names in `integrations.frameworks`, and the table in docs/job-kinds.md. A new kind is one file
here. A configuration file can declare kinds of its own, which `declare` adds to those that are built in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gangline.api.jobkinds import appwrapper, kubeflow, own, ray, spark, trainjob
from gangline.api.jobkinds.declaration import Declaration
from gangline.kube.resources import Resource

#: the kinds that every process knows
BUILT_IN: Final[tuple[Declaration, ...]] = (
    *own.KINDS,
    *ray.KINDS,
    *kubeflow.KINDS,
    *trainjob.KINDS,
    *appwrapper.KINDS,
    *spark.KINDS,
    *own.SERVING_KINDS,
)

_known: Final[dict[tuple[str, str], Declaration]] = {each.identity: each for each in BUILT_IN}


_external: Final[dict[tuple[str, str], Resource]] = {}


def declare(declared: Sequence[Declaration], external: Sequence[Resource] = ()) -> None:
    """Know these kinds besides those that are built in, and no others. Called once, when a process has read its configuration.

    `external`: kinds of other controllers that bring Workloads of their own.
    """
    for identity in [identity for identity, each in _known.items() if each not in BUILT_IN]:
        del _known[identity]
    _known.update({each.identity: each for each in declared})
    _external.clear()
    _external.update({(each.group, each.kind): each for each in external})


def external() -> tuple[Resource, ...]:
    """Kinds whose objects are queued by controllers of their own."""
    return tuple(_external.values())


def external_kind(group: str, kind: str) -> Resource | None:
    return _external.get((group, kind))


def known() -> tuple[Declaration, ...]:
    """All kinds: those that are built in, then those that the configuration declares."""
    return tuple(_known.values())


def is_built_in(group: str, kind: str) -> bool:
    return any(each.identity == (group, kind) for each in BUILT_IN)


def declaration_of(group: str, kind: str) -> Declaration | None:
    return _known.get((group, kind))
