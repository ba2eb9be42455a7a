"""The versions of Kubernetes that Gangline supports, and what it reads or uses of Kubernetes that not all of them have."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from gangline import bounded
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError

log = logging.getLogger(__name__)


class Version(NamedTuple):
    """A minor version of Kubernetes."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, slots=True)
class Feature:
    """`since`: the first version whose API servers have it unless configured otherwise. `without`: a sentence on earlier ones."""

    name: str
    since: Version
    without: str


OLDEST: Final = Version(1, 31)
NEWEST: Final = Version(1, 36)
FEATURES: Final = (
    Feature(
        "MutatingAdmissionPolicy",
        Version(1, 36),
        "Workloads keep metadata.managedFields, so that each costs the API server more",
    ),
    Feature(
        "pod-level resources",
        Version(1, 34),
        "the API server removes spec.resources of pods, and only the requests of containers count",
    ),
    Feature(
        "dynamic resource allocation",
        Version(1, 34),
        "the API server removes resourceClaims of pods",
    ),
)

#: bytes of an answer to /version; real ones have 400
_MOST_BYTES: Final = 65_536


async def tell(client: ApiClient) -> None:
    """Log what the cluster's Kubernetes lacks: Gangline goes on without it."""
    try:
        version = await server_version(client)
    except ApiError as error:
        log.info("the API server does not state its version: %s", error)
        return
    if version is None:
        log.info("the API server does not state its version")
        return
    if found := untested(version):
        log.warning("%s", found)
    for sentence in lacking(version):
        log.info("%s", sentence)


async def server_version(client: ApiClient) -> Version | None:
    """The API server's; None where it does not tell. Raises ApiError."""
    return read_version(await client.raw("/version"))


def read_version(answer: bytes) -> Version | None:
    """The version in the answer to GET /version, in which some providers write a minor version as `31+`; None if there is
    none.
    """
    try:
        body = bounded.load_json(answer, most_bytes=_MOST_BYTES)
    except bounded.BadJsonError:
        return None
    return of(body)


def of(body: object) -> Version | None:
    """The version in that answer as JSON; None if there is none."""
    fields = [body.get(name) for name in ("major", "minor")] if isinstance(body, dict) else []
    numbers = [re.fullmatch(r"([0-9]{1,4})\+?", field) for field in fields if isinstance(field, str)]
    found = [int(number[1]) for number in numbers if number is not None]
    return Version(*found) if len(found) == 2 else None


def untested(version: Version) -> str:
    """A sentence where the version is not among the supported ones, else ""."""
    if OLDEST <= version <= NEWEST:
        return ""
    return f"Kubernetes {version} is not among the versions that Gangline is tested on, {OLDEST} to {NEWEST}"


def lacking(version: Version) -> Iterator[str]:
    """A sentence for each feature that this version lacks."""
    for feature in FEATURES:
        if version < feature.since:
            yield f"Kubernetes {version} has no {feature.name} (from {feature.since} on): {feature.without}"
