"""Gangline's own words, for pods of every kind of job: annotations of the pod template.

`gangline.io/gpu-share: 500m` and `gangline.io/gpu-memory: 8Gi` ask for that much of each of `gangline.io/gpu-count` cards (one).
With memory alone, compute is the same part of the card as its memory. With `gangline.io/gpu-device-class` a claim of that class
gives the pod its share. A pod that requests cards as well may only say how much
memory it needs of each. What cannot be read, or contradicts what else the pod asks for, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import Final

from gangline.api import names
from gangline.api.sharing import card_claims, numbers
from gangline.api.sharing.fault import ShareFault
from gangline.engine.model import Share
from gangline.engine.model.devices import WHOLE

KEYS: Final = (names.GPU_SHARE, names.GPU_MEMORY, names.GPU_COUNT, names.GPU_CLASS, names.GPU_COMPUTE)


def asks(annotations: Mapping[str, object]) -> bool:
    return any(key in annotations for key in KEYS)


def of_pod(annotations: Mapping[str, object], others: tuple[Share, ...]) -> tuple[Share, ...]:
    """All shares of a pod, of which `others` are asked for in other words than ours. An annotation that `faults` reports asks for
    whole cards.
    """
    if not asks(annotations):
        return others
    memory = numbers.memory(_text(annotations, names.GPU_MEMORY)) or 0
    if others:
        return tuple(replace(each, memory=max(each.memory, memory)) if each.unit else each for each in others)
    count = numbers.count(_text(annotations, names.GPU_COUNT)) or 1
    part = numbers.part(_text(annotations, names.GPU_SHARE))
    if part is None:
        if memory and names.GPU_SHARE not in annotations:
            return (Share(count=count, memory=memory, by_memory=True),)
        return (Share(count=count, exclusive=True, memory_milli=WHOLE),)
    milli = ceil(WHOLE * part)
    if names.GPU_CLASS in annotations:
        return (Share(count=count, milli=milli, memory=memory, mode="Claim"),)
    return (Share(count=count, milli=milli, memory=memory, memory_milli=0 if memory else milli),)


def faults(annotations: Mapping[str, object], others: tuple[Share, ...]) -> list[ShareFault]:
    found: list[ShareFault] = []
    for key, read, wanted in (
        (names.GPU_SHARE, numbers.part, "must be a part of a card above 0 and at most 1, such as 0.5 or 500m"),
        (names.GPU_MEMORY, numbers.memory, "must be memory of a card, such as 8Gi"),
        (names.GPU_COUNT, _cards, f"must be a number of cards from 1 to {numbers.MOST_CARDS}"),
        (names.GPU_CLASS, card_claims.device_class, "must be the name of a DeviceClass"),
        (names.GPU_COMPUTE, card_claims.compute, "must be milli or cores, with the domain of its driver if it has one"),
    ):
        if key in annotations and read(_text(annotations, key)) is None:
            found.append(ShareFault(key, annotations[key], wanted))
    if others and names.GPU_SHARE in annotations:
        said = "the pod asks for cards in other words, too: by its requests, or by annotations of others"
        found.append(ShareFault(names.GPU_SHARE, annotations[names.GPU_SHARE], said))
    if others and names.GPU_MEMORY in annotations and not all(each.unit for each in others):
        said = "the pod says in other words, too, how much memory it uses"
        found.append(ShareFault(names.GPU_MEMORY, annotations[names.GPU_MEMORY], said))
    if names.GPU_COUNT in annotations and (others or not says_how_much(annotations)):
        said = f"is the number of cards of which {names.GPU_SHARE} or {names.GPU_MEMORY} says how much of each"
        found.append(ShareFault(names.GPU_COUNT, annotations[names.GPU_COUNT], said))
    if names.GPU_CLASS in annotations and not (names.GPU_SHARE in annotations and names.GPU_MEMORY in annotations):
        said = f"is of a claim for what {names.GPU_SHARE} and {names.GPU_MEMORY} say"
        found.append(ShareFault(names.GPU_CLASS, annotations[names.GPU_CLASS], said))
    if names.GPU_COMPUTE in annotations and names.GPU_CLASS not in annotations:
        said = f"is of the claim whose class {names.GPU_CLASS} names"
        found.append(ShareFault(names.GPU_COMPUTE, annotations[names.GPU_COMPUTE], said))
    return found


def says_how_much(annotations: Mapping[str, object]) -> bool:
    return names.GPU_SHARE in annotations or names.GPU_MEMORY in annotations


def _cards(written: str) -> int | None:
    return numbers.count(written) or None


def _text(annotations: Mapping[str, object], key: str) -> str:
    value = annotations.get(key)
    return value if isinstance(value, str) else ""
