"""Shared by the readers of recorded scenarios: values of the recordings, and the first difference from a recorded result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from gangline.engine.model import Toleration

Json: TypeAlias = dict[str, Any]


def tolerations(holder: Json) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(t.get("key") or "", t.get("operator") or "Equal", t.get("value") or "", t.get("effect") or "")
        for t in holder.get("tolerations") or ()
    )


def first_difference(where: str, recorded: Any, got: Any) -> str | None:
    """The first difference in the engine's JSON, with its path; None if there is none."""
    return next(_differences(where, recorded, got), None)


def _differences(where: str, recorded: Any, got: Any) -> Iterator[str]:
    if isinstance(recorded, Mapping) and isinstance(got, Mapping):
        for key in dict.fromkeys((*recorded, *got)):
            if key in recorded and key in got:
                yield from _differences(f"{where}.{key}", recorded[key], got[key])
            else:
                yield f"{where}.{key}: recorded {_shown(recorded, key)}, the engine gives {_shown(got, key)}"
    elif isinstance(recorded, list) and isinstance(got, list) and not _plain(recorded):
        for index, (left, right) in enumerate(zip(recorded, got, strict=False)):
            yield from _differences(f"{where}[{index}]", left, right)
        if len(recorded) != len(got):
            yield f"{where}: recorded {len(recorded)} entries, the engine gives {len(got)}"
    elif recorded != got:
        yield f"{where}: recorded {recorded!r}, the engine gives {got!r}"


def _plain(values: list[Any]) -> bool:
    """Whether this is a list of names, which is shown as a whole."""
    return all(isinstance(value, str) for value in values)


def _shown(mapping: Mapping[str, Any], key: str) -> str:
    return repr(mapping[key]) if key in mapping else "nothing"
