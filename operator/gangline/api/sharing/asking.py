"""Puts together what a pod asks of cards, in whatever words: resources, annotations and claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gangline.api import names
from gangline.api.sharing import dra, hami, kai, mig, neighbours, own, tencent, traps, visible, whole
from gangline.api.sharing.dra import DeviceAsk
from gangline.api.sharing.fault import ShareFault as ShareFault
from gangline.engine.model import Requests, Share


@dataclass(frozen=True, slots=True)
class PodAsk:
    """What a pod asks with: the requests of each of its containers that runs at the same time, the annotations of its template,
    and what its claims ask for.
    """

    containers: Sequence[Requests]
    annotations: Mapping[str, object] = field(default_factory=dict[str, object])
    claims: Sequence[DeviceAsk] = ()


def shares(ask: PodAsk) -> tuple[Share, ...]:
    return neighbours.named(ask.annotations, own.of_pod(ask.annotations, _in_other_words(ask)))


def faults(ask: PodAsk) -> list[ShareFault]:
    """What contradicts itself in Gangline's own words; what others would not read counts as whole cards instead."""
    words = ask.annotations
    others = _in_other_words(ask) if own.asks(words) or names.GPU_VISIBLE in words else ()
    return own.faults(words, others) + neighbours.faults(words) + visible.faults(words, others)


def doubts(ask: PodAsk, *, claims: bool = False) -> list[str]:
    """What its author should know, and what refuses nothing. `claims`: it has some, and `ask` does not say what they ask for."""
    requested = any(map(traps.requests_cards, ask.containers))
    of_containers = (said for requests in ask.containers for said in traps.of_container(requests))
    beside = () if claims else traps.of_names(ask.annotations, shares(ask))
    return list(dict.fromkeys((*traps.of_pod(ask.annotations, requested), *of_containers, *beside)))


def _in_other_words(ask: PodAsk) -> tuple[Share, ...]:
    found = kai.of_pod(ask.annotations) + dra.of_claim(ask.claims)
    for requests in ask.containers:
        found += _of_container(requests, ask.annotations)
    return found


def _of_container(requests: Requests, annotations: Mapping[str, object]) -> tuple[Share, ...]:
    found = hami.of_container(requests, annotations)
    plain = {
        name: amount
        for name, amount in requests.items()
        if not (found and name == names.HAMI_GPU) and not name.startswith(mig.PREFIX) and name != names.TENCENT_CORES
    }
    return (*found, *mig.of_container(requests), *tencent.of_container(requests), *whole.of_container(plain))
