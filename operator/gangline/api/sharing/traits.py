"""What placement policies may know of pods: annotations of their templates, and the images of their containers.

What cannot be read counts as not said; the webhooks refuse it (`trait_faults`), so that nobody is left in doubt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from gangline import bounded
from gangline.api import names, quantity
from gangline.api.sharing.share_annotations import ShareFault
from gangline.engine.model import NO_TRAITS, Traits

#: of one pod
MOST_IMAGES: Final = 64
MOST_DATASETS: Final = 32
#: characters of an image's name
_LONGEST_IMAGE: Final = 512
_MOST_UTILISATION: Final = 100_000
_MOST_BYTES: Final = 1 << 60
#: ten years
_MOST_SECONDS: Final = 316_000_000
MOST_INTERFACES: Final = 16
MOST_SLOWDOWN: Final = 20
#: 100 Tbit/s
_MOST_MBPS: Final = 100_000_000
#: as the kernel names them
_INTERFACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}")
_SLOWDOWN: Final = re.compile(r"([0-9]{1,2})(?:\.([0-9]{1,3}))?")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?")

_KEYS: Final = (
    names.CLASS,
    names.GPU_UTILISATION,
    names.DATA,
    names.EXPECTED_RUNTIME,
    names.NETWORK,
    names.MAX_SLOWDOWN,
)


def traits(annotations: Mapping[str, object], spec: Mapping[str, Any], *, images: bool) -> Traits:
    """The traits of pods with these annotations and this spec; `images`: a policy looks at them."""
    said = any(key in annotations for key in _KEYS)
    if not said and not images:
        return NO_TRAITS
    found = Traits(
        kind=kind(_text(annotations, names.CLASS)) or "",
        utilisation=utilisation(_text(annotations, names.GPU_UTILISATION)),
        images=tuple(dict.fromkeys(_images(spec)))[:MOST_IMAGES] if images else (),
        data=datasets(_text(annotations, names.DATA)) or (),
        seconds=seconds(_text(annotations, names.EXPECTED_RUNTIME)) or 0,
        interfaces=interfaces_of(annotations),
        max_slowdown=max_slowdown(_text(annotations, names.MAX_SLOWDOWN)) or 0,
    )
    return NO_TRAITS if found == NO_TRAITS else found


def trait_faults(annotations: Mapping[str, object]) -> list[ShareFault]:
    """What is written there and cannot be read."""
    readers = (
        (names.CLASS, kind, "must be a name of letters, digits, '.', '_', '/' and '-', at most 253 characters"),
        (names.GPU_UTILISATION, utilisation, f"must be percent of one GPU, a whole number up to {_MOST_UTILISATION}"),
        (names.DATA, datasets, f"must be up to {MOST_DATASETS} datasets with their sizes, such as a=800Gi,b=20Gi"),
        (names.MAX_SLOWDOWN, max_slowdown, f"must be a number from 1 to {MOST_SLOWDOWN}, such as 1.25"),
        (names.NETWORK, interfaces, f"must be up to {MOST_INTERFACES} interfaces with their Mbit/s, such as ib0=50000"),
    )
    return [
        ShareFault(key, annotations[key], wanted)
        for key, read, wanted in readers
        if key in annotations and read(_text(annotations, key)) is None
    ]


def interfaces_of(annotations: Mapping[str, object]) -> tuple[tuple[str, int], ...]:
    """The interfaces of a node, or those that a pod takes, with their Mbit/s; none where they cannot be read."""
    return interfaces(_text(annotations, names.NETWORK)) or ()


@bounded.parser(253, instead=None, worst=("a", "a/", "a."))
def kind(written: str) -> str | None:
    """A kind of work; None if it is none."""
    return written if _NAME.fullmatch(written) else None


@bounded.parser(16, instead=None, worst=("9",))
def utilisation(written: str) -> int | None:
    """Percent of one accelerator; None if it is none."""
    found = bounded.whole(written)
    return found if found is not None and found <= _MOST_UTILISATION else None


@bounded.parser(8, instead=None, worst=("1.", "9"))
def max_slowdown(written: str) -> int | None:
    """How much slower a pod may be, in thousandths; None if it is no such number."""
    match = _SLOWDOWN.fullmatch(written)
    if match is None:
        return None
    found = 1000 * int(match[1]) + int((match[2] or "").ljust(3, "0"))
    return found if 1000 <= found <= 1000 * MOST_SLOWDOWN else None


@bounded.parser(16_384, instead=None, worst=("a=9Gi,", "a=", ",", "="))
def datasets(written: str) -> tuple[tuple[str, int], ...] | None:
    """Datasets with their bytes; None if they cannot be read."""
    parts = [part.strip() for part in written.split(",", MOST_DATASETS) if part.strip()]
    if not parts or len(parts) > MOST_DATASETS:
        return None
    found: dict[str, int] = {}
    for part in parts:
        name, _, size = part.partition("=")
        amount = _bytes(size)
        if amount is None or not _NAME.fullmatch(name):
            return None
        found[name] = amount
    return tuple(sorted(found.items()))


@bounded.parser(1024, instead=None, worst=("a=9,", "a=", ",", "="))
def interfaces(written: str) -> tuple[tuple[str, int], ...] | None:
    """Interfaces with their Mbit/s, each once; None if they cannot be read."""
    parts = [part.strip() for part in written.split(",")]
    found: dict[str, int] = {}
    for part in parts if len(parts) <= MOST_INTERFACES else ():
        name, _, mbps = part.partition("=")
        amount = bounded.whole(mbps)
        if amount is None or not 0 < amount <= _MOST_MBPS or name in found or not _INTERFACE.fullmatch(name):
            return None
        found[name] = amount
    return tuple(sorted(found.items())) or None


@bounded.parser(6, instead=None, worst=("9",))
def watts(written: str) -> int | None:
    """What a node says that it draws; None where it cannot be read."""
    return bounded.whole(written)


@bounded.parser(32, instead=None, worst=("9Gi", "0."))
def _bytes(written: str) -> int | None:
    try:
        found = quantity.parse(written, "memory") if written else 0
    except quantity.QuantityError:
        return None
    return found if 0 < found <= _MOST_BYTES else None


@bounded.parser(64, instead=None, worst=("9h", "0."))
def seconds(written: str) -> int | None:
    """A duration in whole seconds; None if it is none."""
    try:
        found = quantity.parse_duration(written) if written else 0.0
    except quantity.QuantityError:
        return None
    return int(found) if 0 < found <= _MOST_SECONDS else None


def _images(spec: Mapping[str, Any]) -> Iterator[str]:
    for key in ("initContainers", "containers"):
        containers: Any = spec.get(key)
        for container in cast("list[Any]", containers) if isinstance(containers, list) else ():
            image: Any = cast("dict[str, Any]", container).get("image") if isinstance(container, dict) else None
            if isinstance(image, str) and 0 < len(image) <= _LONGEST_IMAGE:
                yield image


def _text(annotations: Mapping[str, object], key: str) -> str:
    value = annotations.get(key)
    return value if isinstance(value, str) else ""
