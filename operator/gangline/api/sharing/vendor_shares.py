"""Cards in the words of others: HAMi, KAI, MIG, Tencent's GPU manager, and whole cards of device plugins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Final

from gangline.api import names
from gangline.api.sharing import numbers, share_annotations
from gangline.bounded import parser, shown
from gangline.engine.model import Requests, Share, is_accelerator
from gangline.engine.model.devices import WHOLE

# --- hami -------------------------------------------------------------------------------------------------------------
#
# HAMi: `nvidia.com/gpu` with a bound on memory and compute of each GPU, which a library in the container enforces.
#
# A pod that says how much and not of how many GPUs gets one: HAMi's webhook adds it to the pod. Without `gpucores` compute is
# not bounded, without `gpumem` and `gpumem-percentage` memory is not; of these two `gpumem` counts. A value that HAMi does not
# know bounds nothing.


_OWN: Final = (names.HAMI_CORES, names.HAMI_MEMORY, names.HAMI_PERCENT)
#: characters of a list of cards or models in an annotation, and its entries that are looked at
_LONGEST: Final = 8192
_MOST: Final = 256


def hami_shares(requests: Requests, annotations: Mapping[str, object]) -> tuple[Share, ...]:
    """The shares for which a container asks HAMi; () if it does not ask HAMi."""
    count = requests.get(names.HAMI_GPU, 1)
    if count <= 0 or not any(requests.get(name, 0) > 0 for name in _OWN):
        return ()
    cores = hami_percent(requests.get(names.HAMI_CORES, 0))
    memory = min(numbers.MOST_MEMORY, requests.get(names.HAMI_MEMORY, 0))
    percent = hami_percent(requests.get(names.HAMI_PERCENT, 0)) or 100
    return (
        Share(
            count=count,
            milli=cores * 10,
            memory=memory,
            memory_milli=0 if memory else percent * 10,
            exclusive=cores == 100,
            mode="Software",
            resource=names.HAMI_GPU,
            cards=frozenset(_listed_in(annotations, names.HAMI_USE_UUID)),
            not_cards=frozenset(_listed_in(annotations, names.HAMI_NO_UUID)),
            models=_listed_in(annotations, names.HAMI_USE_TYPE),
            not_models=_listed_in(annotations, names.HAMI_NO_TYPE),
        ),
    )


def hami_percent(value: int) -> int:
    return value if 0 < value <= 100 else 0


def _listed_in(annotations: Mapping[str, object], key: str) -> tuple[str, ...]:
    written = annotations.get(key)
    return hami_types(written) if isinstance(written, str) else ()


@parser(_LONGEST, instead=(), worst=(",", "a,", " ,"))
def hami_types(written: str) -> tuple[str, ...]:
    """Entries between commas."""
    return tuple(each for part in written.split(",", _MOST)[:_MOST] if (each := part.strip()))


# --- kai --------------------------------------------------------------------------------------------------------------
#
# KAI: annotations of pods that request no GPU. Its scheduler gives them a part of a card; nothing bounds their memory.
#
# `gpu-fraction` is of memory and compute, `gpu-memory` is MiB. A fraction that KAI would not read counts as a whole card.


def kai_shares(annotations: Mapping[str, object]) -> tuple[Share, ...]:
    if names.KAI_FRACTION not in annotations and names.KAI_MEMORY not in annotations:
        return ()
    count = numbers.count(_text(annotations, names.KAI_DEVICES)) or 1
    if names.KAI_FRACTION in annotations:
        part = numbers.fraction(_text(annotations, names.KAI_FRACTION)) or Fraction(1)
        milli = ceil(WHOLE * part)
        return (Share(count=count, milli=milli, memory_milli=milli),)
    memory = numbers.mebibytes(_text(annotations, names.KAI_MEMORY))
    if memory is None:
        return (Share(count=count, milli=WHOLE, memory_milli=WHOLE),)
    return (Share(count=count, memory=memory, by_memory=True),)


def _text(annotations: Mapping[str, object], key: str) -> str:
    value = annotations.get(key)
    return value if isinstance(value, str) else ""


# --- mig --------------------------------------------------------------------------------------------------------------
#
# MIG: instances by profile, `nvidia.com/mig-1g.5gb`; a pod may get several on one card. What an instance is of its card says
# the node.


MIG_PREFIX: Final = "nvidia.com/mig-"
_PROFILE: Final = re.compile(r"[0-9]{1,2}g\.([0-9]{1,4})gb(?:[.+][a-z0-9.+]{1,16})?")


def mig_shares(requests: Requests) -> tuple[Share, ...]:
    return tuple(
        Share(count=amount, apart=False, mode="MIG", profile=name.removeprefix(MIG_PREFIX), resource=name)
        for name, amount in sorted(requests.items())
        if amount > 0 and name.startswith(MIG_PREFIX)
    )


@parser(64, instead=0, worst=("9g.", "+a", ".a"))
def nominal_memory(profile: str) -> int:
    """The MiB in the name of a profile, such as 1g.5gb; 0 for any other name."""
    found = _PROFILE.fullmatch(profile)
    return int(found.group(1)) << 10 if found is not None else 0


# --- tencent ----------------------------------------------------------------------------------------------------------
#
# Tencent's GPU manager: `tencent.com/vcuda-core`, percent of one card or a multiple of 100, and `vcuda-memory`, 256 MiB each.


_WHOLE_CORES: Final = 100
_UNIT_MIB: Final = 256


def tencent_shares(requests: Requests) -> tuple[Share, ...]:
    cores = requests.get(names.TENCENT_CORES, 0)
    if cores <= 0:
        return ()
    if cores >= _WHOLE_CORES:
        count = -(-cores // _WHOLE_CORES)
        return (Share(count=count, exclusive=True, memory_milli=1000, resource=names.TENCENT_CORES),)
    memory = min(numbers.MOST_MEMORY, requests.get(names.TENCENT_MEMORY, 0) * _UNIT_MIB)
    part = cores * 10
    return (Share(milli=part, memory=memory, memory_milli=0 if memory else part, resource=names.TENCENT_CORES),)


# --- whole cards, as device plugins give them, and equal slices of cards under a name of their own --------------------
#
# `nvidia.com/gpu` may be a whole card or, where its plugin shares cards out and does not rename them, a slice of one; with
# `renameByDefault` slices are `nvidia.com/gpu.shared`. What a unit is says the node. A pod that asks for two slices gets no
# more of a card than with one, so that each counts, and each has to be on another card.


def whole_cards(requests: Requests) -> tuple[Share, ...]:
    return tuple(
        Share(count=amount, unit=True, resource=name)
        for name, amount in sorted(requests.items())
        if amount > 0 and is_accelerator(name)
    )


# --- traps ------------------------------------------------------------------------------------------------------------
#
# What authors should know of requests in the words of others: it is admitted, and does not mean what it seems to.


_SLICES: Final = "nvidia.com/gpu.shared"


def pod_doubts(annotations: Mapping[str, object], requested: bool) -> Iterator[str]:
    """`requested`: its containers request cards, too."""
    asks = kai_shares(annotations)
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


def name_doubts(annotations: Mapping[str, object], shares: Sequence[Share]) -> Iterator[str]:
    said = "the pod asks for whole GPUs, and has them for itself anyway" if shares else "the pod asks for no GPU"
    if all(share.exclusive for share in shares):
        yield from (
            f"annotation {key} says nothing: {said}" for key in share_annotations.NEIGHBOUR_KEYS if key in annotations
        )


def container_doubts(requests: Requests) -> Iterator[str]:
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
