"""ResourceClaims of pods that say by annotations what part of cards they use, and of which DeviceClass: GPUJob's shares by DRA.

Pods that wait for their place name a template that does not exist, `BY_OPERATOR`. The operator writes the claim of each of them,
for the cards of its seat, before it lets the pod start (`control.nodes.gates`), and the controller of claims takes it: that
looks for a claim which the pod owns before it makes one of a template. Other pods name a template with the same request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Final

from gangline.api import names
from gangline.api.sharing import numbers
from gangline.bounded import parser
from gangline.engine.model.devices import WHOLE

#: the claim among those of a pod
CLAIM: Final = "gangline-gpu"
#: the template that pods name whose claims the operator writes
BY_OPERATOR: Final = "written-by-gangline"
#: cards of one pod: the API server allocates no more devices to a claim
MOST_CARDS: Final = 32

_DEFAULT_COMPUTE: Final = "milli"
_CLASS: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_COMPUTE: Final = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?/)?(?:milli|cores)")
#: names of cards that a selector can tell apart: a digest, or the path of a card without an uuid, is none
_UUID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,252}")
_OF_CARD: Final = '"uuid" in device.attributes[device.driver] && device.attributes[device.driver].uuid == "{}"'


@parser(253, instead=None, worst=("a", "a.", "-"))
def device_class(written: str) -> str | None:
    """The name of a DeviceClass; None if it is none."""
    return written if _CLASS.fullmatch(written) else None


@parser(69, instead=None, worst=("a", "a.", "-"))
def compute(written: str) -> str | None:
    """The capacity in which a driver counts compute; None if it cannot be one."""
    return written if _COMPUTE.fullmatch(written) else None


def spec(annotations: Mapping[str, object], cards: Sequence[str] = ()) -> dict[str, Any] | None:
    """`spec` of the claim of a pod with these annotations: for just these cards, if they are as many as it asks for, and each can
    be named. None where the annotations ask for no claim.
    """
    text = {key: value for key, value in annotations.items() if isinstance(value, str)}
    name, part = device_class(text.get(names.GPU_CLASS, "")), numbers.part(text.get(names.GPU_SHARE, ""))
    memory = numbers.memory(text.get(names.GPU_MEMORY, ""))
    counted = compute(text.get(names.GPU_COMPUTE, _DEFAULT_COMPUTE))
    count = numbers.count(text.get(names.GPU_COUNT, "1"))
    if name is None or part is None or memory is None or counted is None or not count or count > MOST_CARDS:
        return None
    domain, slash, unit = counted.rpartition("/")
    amount = ceil((WHOLE if unit == "milli" else 100) * part)
    exactly = {
        "deviceClassName": name,
        "capacity": {"requests": {counted: str(amount), f"{domain}{slash}memory": f"{memory}Mi"}},
    }
    if len(cards) != count or not all(map(_UUID.fullmatch, cards)):
        return {"devices": {"requests": [{"name": "gpu", "exactly": {**exactly, "count": count}}]}}
    chosen = [[{"cel": {"expression": _OF_CARD.format(card)}}] for card in cards]
    rows = [{"name": f"gpu-{i}", "exactly": {**exactly, "selectors": each}} for i, each in enumerate(chosen)]
    return {"devices": {"requests": rows}}
