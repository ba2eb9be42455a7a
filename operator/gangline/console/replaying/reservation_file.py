"""Reservations from files of manifests: the same objects that a cluster takes, which need not exist yet."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gangline import bounded
from gangline.api.admission import syntax
from gangline.api.read import models
from gangline.api.read.reading import ParseError, child
from gangline.api.reservations import reservation
from gangline.api.schema.v1alpha1.reservation import ReservationSpec
from gangline.api.spec_fields import SpecError
from gangline.console.replaying import manifests
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.replay.replayed import ReplayError


def read(files: Iterable[Path]) -> dict[str, Json]:
    """The specs of the Reservations of all files, by name. Raises ReplayError."""
    found: dict[str, Json] = {}
    for file in files:
        for document in manifests.of_kind(manifests.text_of(file, "--reservation"), file.name, kube.RESERVATIONS.kind):
            name = _name(document, file.name)
            if name in found:
                raise ReplayError(f"{file.name}: there are two Reservations {name}")
            found[name] = _spec(document, f"{file.name}: Reservation {name}")
    return found


def _name(document: Json, file: str) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or syntax.dns_label_faults(name):
        raise ReplayError(f"{file}: metadata.name of a Reservation is no name: {bounded.shown(name)}")
    return name


def _spec(document: Json, where: str) -> Json:
    try:
        spec = child(document, "spec", "")
        unknown = models.unknown(models.read(ReservationSpec, spec, "spec"), spec, "spec")
        reservation(document)
    except (ParseError, SpecError) as error:
        raise ReplayError(f"{where}: {error}") from None
    if unknown:
        raise ReplayError(f"{where}: {unknown[0]}: there is no such field")
    return spec
