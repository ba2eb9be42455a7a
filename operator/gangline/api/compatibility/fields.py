"""Fields of all kinds of Kueue, and which of an object's fields have no effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from gangline.api.compatibility.other_fields import OTHERS
from gangline.api.compatibility.queue_fields import QUEUES
from gangline.api.compatibility.states import Fields
from gangline.api.compatibility.workload_fields import WORKLOAD

#: kind -> its fields
FIELDS: Final[Mapping[str, Fields]] = {**WORKLOAD, **QUEUES, **OTHERS}


def _outer(path: str) -> str:
    """The field that this one is in."""
    return path.rpartition(".")[0].removesuffix("[]")


#: kind -> fields of a spec that have no effect, the outermost alone, as the steps to them; and the words
_WITHOUT_EFFECT: Final[Mapping[str, tuple[tuple[tuple[str, ...], str], ...]]] = {
    kind: tuple(
        (tuple(path.split(".")), state.words)
        for path, state in fields.items()
        if state.does == "no" and path.startswith("spec.") and fields[_outer(path)].does != "no"
    )
    for kind, fields in FIELDS.items()
}


def without_effect(kind: str, obj: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each field that the author of the object has set and that does nothing."""
    for steps, words in _WITHOUT_EFFECT.get(kind, ()):
        if _is_set(obj, steps):
            yield f"{'.'.join(steps)} has no effect: {words}"


def _is_set(value: Any, steps: tuple[str, ...]) -> bool:
    """Whether something stands at this place, in any item of the lists on the way."""
    if not steps:
        return value not in (None, {}, [], "")
    name = steps[0].removesuffix("[]")
    inner: Any = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    if name == steps[0]:
        return _is_set(inner, steps[1:])
    return isinstance(inner, list) and any(_is_set(item, steps[1:]) for item in cast("list[Any]", inner))
