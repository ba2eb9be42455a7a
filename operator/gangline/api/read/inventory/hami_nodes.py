"""HAMi's annotations: the cards of a node (`hami.io/node-nvidia-register`), and what a pod got of which card
(`hami.io/vgpu-devices-allocated`).

Two forms of the first are in use: JSON, and older rows of nine or seven fields (uuid, pods, MiB, percent of compute, model, NUMA
node, health, number, mode), each ended by a colon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from gangline import bounded
from gangline.api import names
from gangline.api.read.reading import ParseError
from gangline.api.sharing import numbers
from gangline.bounded import parser
from gangline.engine.model import Device, Mode, Part, Profile
from gangline.engine.model.devices import WHOLE

#: characters of an annotation, its cards, and levels of its JSON
_LONGEST: Final = 131_072
_MOST: Final = 256
_DEEPEST: Final = 6
_MODES: Final[Mapping[str, Mode]] = {"hami-core": "Software", "mig": "MIG", "mps": "MPS"}
_TRUE: Final = frozenset({"true", "True", "TRUE", "t", "T", "1"})


def _too_long(written: str) -> ParseError:
    return ParseError(names.HAMI_NODE, f"is longer than {_LONGEST} characters")


@parser(_LONGEST, refuse=_too_long, worst=("a,1,1,1,m,0,true:", ":", ",", "[", '[{"id":"a"},', "9"))
def cards(written: str, node: str) -> tuple[Device, ...]:
    """Read the cards of a node from HAMi's annotation. Raises ParseError."""
    rows = _from_json(written) if written.lstrip().startswith("[") else _from_text(written)
    return tuple(_card(node, row) for row in rows)


def _from_json(written: str) -> Iterator[Mapping[str, Any]]:
    try:
        found = bounded.load_json(written, most_bytes=4 * _LONGEST, most_depth=_DEEPEST)
    except bounded.BadJsonError as error:
        raise ParseError(names.HAMI_NODE, str(error)) from None
    for row in cast("list[Any]", found)[:_MOST]:
        if not isinstance(row, dict):
            raise ParseError(names.HAMI_NODE, "must be a list of cards")
        yield cast("dict[str, Any]", row)


def _from_text(written: str) -> Iterator[Mapping[str, Any]]:
    for row in written.split(":", _MOST)[:_MOST]:
        fields = row.strip().split(",", 9)
        if fields == [""]:
            continue
        if len(fields) not in (7, 9):
            raise ParseError(names.HAMI_NODE, f"{bounded.shown(row)} has not the 7 or 9 fields of a card")
        keys = ("id", "count", "devmem", "devcore", "type", "numa", "health", "index", "mode")
        yield dict(zip(keys, fields, strict=False)) | {"health": fields[6] in _TRUE}


def _card(node: str, row: Mapping[str, Any]) -> Device:
    uuid = row.get("id")
    if not isinstance(uuid, str) or not 0 < len(uuid) <= names.LONGEST_UUID:
        raise ParseError(names.HAMI_NODE, "every card needs an id")
    model, mode = row.get("type"), row.get("mode")
    return Device(
        node=node,
        uuid=uuid,
        index=_number(row, "index"),
        model=model[: names.LONGEST_UUID] if isinstance(model, str) else "",
        milli=_number(row, "devcore", WHOLE) * 10,
        memory=_number(row, "devmem", numbers.MOST_MEMORY),
        slots=_number(row, "count"),
        numa=_number(row, "numa"),
        healthy=row.get("health") is True,
        mode=_MODES.get(mode, "") if isinstance(mode, str) else "Software",
        profiles=tuple(_profiles(row.get("migProfiles"))),
        resource=names.HAMI_GPU,
    )


def _profiles(value: Any) -> Iterator[Profile]:
    for row in cast("list[Any]", value)[:_MOST] if isinstance(value, list) else ():
        found = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
        name, places = found.get("name"), found.get("placements")
        if isinstance(name, str) and len(name) <= names.LONGEST_UUID and isinstance(places, list):
            memory = _number(found, "memoryMB", numbers.MOST_MEMORY)
            yield Profile(name, _number(found, "sliceCount"), memory, len(cast("list[Any]", places)))


def _number(row: Mapping[str, Any], key: str, most: int = 9999) -> int:
    """A whole number from 0, which may be left out and then is 0."""
    value = row.get(key, 0)
    found = bounded.whole(value) if isinstance(value, str) else value if type(value) is int else None
    if found is None or not 0 <= found <= most:
        raise ParseError(names.HAMI_NODE, f"{key} {bounded.shown(value)} is not a whole number from 0 to {most}")
    return found


@parser(_LONGEST, instead=(), worst=("a,NVIDIA,1,1:;", ":", ";", ","))
def allocated(written: str) -> tuple[tuple[str, Part], ...]:
    """What each container got of which card, by uuid; rows that HAMi would not read are left out."""
    found: list[tuple[str, Part]] = []
    for row in written.replace(";", ":").split(":"):
        fields = row.strip().split(",", 4)
        if len(fields) < 4 or not 0 < len(fields[0]) <= names.LONGEST_UUID:
            continue
        memory, percent = bounded.whole(fields[2]), bounded.whole(fields[3])
        if memory is not None and percent is not None and len(found) < _MOST:
            found.append((fields[0], Part(min(percent, 100) * 10, min(memory, numbers.MOST_MEMORY))))
    return tuple(found)
