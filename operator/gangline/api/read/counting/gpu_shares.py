"""What a pod asks of cards while it asks for most: of its containers and sidecars together, or of one init container beside the
sidecars before it. And what that counts for in quota of `gangline.io/gpu-milli` and `gangline.io/gpu-mem`.

A ClusterQueue that has quota of these counts them; in any other one nothing changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from gangline.api.read import podspec
from gangline.api.read.counting.device_claims import Claim, device_asks
from gangline.api.read.reading import Json, child
from gangline.api.sharing import asking
from gangline.engine.model import UNLIMITED, Requests, Share

#: places of one pod that ask for cards
MOST_SHARES: Final = 64


@dataclass(frozen=True, slots=True)
class GpuShares:
    """`charges`: what one pod counts for besides its requests, nothing if it asks for no card. `fault`: why its Workload is not
    admitted, "" if nothing is wrong; the field in it is within the template.
    """

    shares: tuple[Share, ...] = ()
    charges: Requests = field(default_factory=dict[str, int])
    fault: str = ""


_NOTHING: Final = GpuShares()


def gpu_shares(
    template: Json,
    spec: Json,
    explained: Collection[str],
    sizes: asking.CardSizes = asking.UNKNOWN,
    claims: Mapping[str, Claim] = MappingProxyType({}),
) -> GpuShares:
    """`spec` is completed. `explained` are resources that the configuration transforms: it says what they count for. `claims` are
    the namespace's ResourceClaimTemplates.
    """
    annotations = child(child(template, "metadata", "template"), "annotations", "template.metadata")
    running, starting = podspec.by_container(spec)
    sidecars = [requests for requests, stays in starting if stays]
    claimed = device_asks(spec, claims) if claims and spec.get("resourceClaims") else []
    ask = asking.PodAsk([*running, *sidecars], annotations, claimed)
    found = asking.shares(ask)
    charges = asking.charged(found, sizes, explained)
    first = _largest_start(starting, explained, sizes)
    if first is not None:
        early = asking.PodAsk(
            [*(requests for requests, stays in starting[:first] if stays), starting[first][0]], annotations, claimed
        )
        starts = asking.shares(early)
        peak = asking.charged(starts, sizes, explained)
        if not charges or _milli_first(peak) > _milli_first(charges):
            found = starts
        charges = {name: max(charges.get(name, 0), size) for name, size in peak.items()} | {
            name: size for name, size in charges.items() if name not in peak
        }
    if not found:
        return _NOTHING if not (wrong := asking.faults(ask)) else GpuShares(fault=_said(wrong))
    if len(found) > MOST_SHARES:
        return GpuShares(found[:MOST_SHARES], charges, f"spec: asks for cards in more than {MOST_SHARES} places")
    return GpuShares(found, charges, _said(asking.faults(ask)))


def _largest_start(
    starting: Sequence[tuple[Requests, bool]], explained: Collection[str], sizes: asking.CardSizes
) -> int | None:
    """The init container that starts beside most; None if none asks for cards."""
    before: Requests = {}
    largest: tuple[tuple[int, ...], int] | None = None
    for i, (requests, stays) in enumerate(starting):
        own = asking.charged(asking.shares(asking.PodAsk([requests])), sizes, explained)
        total = {name: min(UNLIMITED, before.get(name, 0) + own.get(name, 0)) for name in before.keys() | own.keys()}
        if stays:
            before = total
        elif own and (largest is None or _milli_first(total) > largest[0]):
            largest = _milli_first(total), i
    return largest[1] if largest is not None else None


def _milli_first(charges: Requests) -> tuple[int, ...]:
    return tuple(size for _, size in sorted(charges.items(), reverse=True))  # …/gpu-milli before …/gpu-mem


def _said(faults: Sequence[asking.ShareFault]) -> str:
    return f"{faults[0].field}: {faults[0].message}" if faults else ""
