"""What authors should know of requests in the words of others: it is admitted, and does not mean what it seems to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gangline.api import names
from gangline.api.sharing import kai, neighbours, numbers
from gangline.bounded import shown
from gangline.engine import is_accelerator
from gangline.engine.model import Requests, Share

_SLICES: Final = "nvidia.com/gpu.shared"


def of_pod(annotations: Mapping[str, object], requested: bool) -> Iterator[str]:
    """`requested`: its containers request cards, too."""
    asks = kai.of_pod(annotations)
    for key, read in (
        (names.KAI_FRACTION, numbers.fraction),
        (names.KAI_MEMORY, numbers.mebibytes),
        (names.KAI_DEVICES, numbers.count),
    ):
        value = annotations.get(key)
        if value is not None and asks and (not isinstance(value, str) or read(value) is None):
            counts = "one GPU" if key == names.KAI_DEVICES else "a whole GPU"
            yield f"annotation {key}: {shown(value)} is nothing that KAI reads: it counts as {counts}"
    if names.KAI_FRACTION in annotations and names.KAI_MEMORY in annotations:
        yield f"annotation {names.KAI_MEMORY} is not looked at beside {names.KAI_FRACTION}"
    if asks and requested:
        key = names.KAI_FRACTION if names.KAI_FRACTION in annotations else names.KAI_MEMORY
        yield f"annotation {key}: the pod requests GPUs besides, and both count"


def of_names(annotations: Mapping[str, object], shares: Sequence[Share]) -> Iterator[str]:
    said = "the pod asks for whole GPUs, and has them for itself anyway" if shares else "the pod asks for no GPU"
    if all(share.exclusive for share in shares):
        yield from (f"annotation {key} says nothing: {said}" for key in neighbours.KEYS if key in annotations)


def of_container(requests: Requests) -> Iterator[str]:
    if requests.get(_SLICES, 0) > 1:
        yield f"{_SLICES}: two slices of a card give no more than one: each counts, on a card of its own"
    for name in (names.HAMI_CORES, names.HAMI_PERCENT):
        if requests.get(name, 0) > 100:
            yield f"{name}: more than 100 percent bound nothing: all of the card counts"
    if requests.get(names.HAMI_MEMORY, 0) and requests.get(names.HAMI_PERCENT, 0):
        yield f"{names.HAMI_PERCENT} is not looked at beside {names.HAMI_MEMORY}"
    cores = requests.get(names.TENCENT_CORES, 0)
    if cores > 100 and cores % 100:
        yield f"{names.TENCENT_CORES}: more than 100 is a multiple of 100: it counts as {-(-cores // 100)} whole cards"


def requests_cards(requests: Requests) -> bool:
    return any(
        amount > 0 and (is_accelerator(name) or name == names.TENCENT_CORES) for name, amount in requests.items()
    )
