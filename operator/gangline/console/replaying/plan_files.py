"""Reservations and QuotaPlans from files of manifests: the same objects that a cluster takes, which need not exist yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from gangline import bounded
from gangline.api.admission import syntax
from gangline.api.quota_plans import quota_plan
from gangline.api.read import models
from gangline.api.read.reading import ParseError, child
from gangline.api.reservations import reservation
from gangline.api.schema.json_schema import ApiModel
from gangline.api.schema.v1alpha1.quotaplan import QuotaPlanSpec
from gangline.api.schema.v1alpha1.reservation import ReservationSpec
from gangline.api.spec_fields import SpecError
from gangline.console.replaying import manifests
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource
from gangline.replay.replayed import ReplayError

#: the model of a specification, and the reader that finds what a schema cannot
_KINDS: Final[Mapping[Resource, tuple[type[ApiModel], Callable[[Json], Any]]]] = {
    kube.RESERVATIONS: (ReservationSpec, reservation),
    kube.QUOTA_PLANS: (QuotaPlanSpec, quota_plan),
}


def read(files: Iterable[Path], resource: Resource, option: str) -> dict[str, Json]:
    """The specifications of the objects of a kind in all files that an option names, by name. Raises ReplayError."""
    found: dict[str, Json] = {}
    for file in files:
        for document in manifests.of_kind(manifests.text_of(file, option), file.name, resource.kind):
            name = _name(document, f"{file.name}: metadata.name of a {resource.kind}")
            if name in found:
                raise ReplayError(f"{file.name}: there are two objects {resource.kind} {name}")
            found[name] = _spec(document, resource, f"{file.name}: {resource.kind} {name}")
    return found


def _name(document: Json, where: str) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or syntax.dns_label_faults(name):
        raise ReplayError(f"{where} is no name: {bounded.shown(name)}")
    return name


def _spec(document: Json, resource: Resource, where: str) -> Json:
    model, reader = _KINDS[resource]
    try:
        spec = child(document, "spec", "")
        unknown = models.unknown(models.read(model, spec, "spec"), spec, "spec")
        reader(document)
    except (ParseError, SpecError) as error:
        raise ReplayError(f"{where}: {error}") from None
    if unknown:
        raise ReplayError(f"{where}: {unknown[0]}: there is no such field")
    return spec
