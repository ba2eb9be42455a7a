"""`multiKueue.externalFrameworks`: custom resources that other controllers queue, and that are sent to other clusters, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast

from gangline.api import jobkinds
from gangline.api.jobkinds import Declaration, others
from gangline.api.read.configuration.fields import ConfigurationError
from gangline.kube.resources import Json, Resource

#: kinds that can be named
MOST: Final = 32
_OURS: Final = frozenset({"kueue.x-k8s.io", "gangline.io"})
#: where such a kind names its controller, as in Kueue
MANAGED_BY: Final = ("spec", "managedBy")


def load(rows: Sequence[Any], where: str) -> tuple[Resource, ...]:
    """The rows have the shape {name}. Raises ConfigurationError."""
    if len(rows) > MOST:
        raise ConfigurationError(f"{where}: at most {MOST} kinds can be named")
    found: list[Resource] = []
    for i, row in enumerate(rows):
        name = str(cast("Json", row or {}).get("name") or "")
        at = f"{where}[{i}].name"
        try:
            resource = others.kind(name)
        except others.NoKindError:
            continue  # `multikueue.unheeded` says so
        except ValueError as error:
            raise ConfigurationError(f"{at}: {error}") from None
        if resource in found:
            raise ConfigurationError(f"{at}: {name} is named twice")
        known = jobkinds.declaration_of(resource.group, resource.kind)
        if resource.group in _OURS or (
            known is not None and jobkinds.is_built_in(*known.identity) and not known.managed_by
        ):
            raise ConfigurationError(f"{at}: a {resource.kind} of {resource.group} runs in its own cluster only")
        found.append(resource)
    return tuple(found)


def unheeded(rows: Sequence[Any], where: str) -> list[str]:
    """A sentence about each name that has no effect."""
    found: list[str] = []
    for i, row in enumerate(rows):
        try:
            others.kind(str(cast("Json", row or {}).get("name") or ""))
        except others.NoKindError as error:
            found.append(f"{where}[{i}].name: {error}, as in Kueue")
        except ValueError:
            pass  # `load` refuses it
    return found


def settled(
    declared: Sequence[Declaration], named: Sequence[Resource]
) -> tuple[tuple[Declaration, ...], tuple[Resource, ...]]:
    """The declared kinds, of which those that are named can be sent; and the named kinds, with the plurals that are known."""
    known = {(each.resource.api_version, each.kind): each for each in (*jobkinds.BUILT_IN, *declared)}
    wanted = [known.get((each.api_version, each.kind)) for each in named]
    kinds = tuple(
        each if each.managed_by or each not in wanted else replace(each, managed_by=MANAGED_BY) for each in declared
    )
    return kinds, tuple(each.resource if each is not None else other for each, other in zip(wanted, named, strict=True))
