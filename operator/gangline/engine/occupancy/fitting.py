"""Pods and what they take: amounts per pod, sums over pods, and how many fit into what is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from gangline.engine.model import Requests
from gangline.engine.model.nodes import INTERFACE

#: The requests of one pod: (resource, amount) by name, amounts above zero, its own slot ("pods") included.
PodRequests: TypeAlias = tuple[tuple[str, int], ...]

#: The resource that counts the pods of a node.
PODS = "pods"

#: The label that names a node's host.
HOSTNAME = "kubernetes.io/hostname"

#: Pods that ask for nothing that is counted: any number fits.
ANY_NUMBER = 1 << 40


def as_pod_requests(requests: Requests) -> PodRequests:
    """Per-pod requests as capacity is counted: with one pod slot, without zero amounts, which limit nothing."""
    return tuple(sorted((name, amount) for name, amount in usage_of(requests, 1).items() if amount > 0))


def usage_of(requests: Requests, count: int) -> dict[str, int]:
    """The usage of `count` pods of these per-pod requests, their slots (`pods`) included."""
    amounts = {name: amount * count for name, amount in requests.items()}
    amounts[PODS] = amounts.get(PODS, 0) + count
    return amounts


def add(total: dict[str, int], amounts: Mapping[str, int], count: int = 1) -> None:
    """Add `count` times these amounts (negative: take away); a resource stays listed when none of it is left."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount * count


def shift(held: dict[str, int], amounts: Mapping[str, int], count: int) -> None:
    """The same; resources of which nothing is held are not listed."""
    for name, amount in amounts.items():
        total = held.get(name, 0) + amount * count
        if total:
            held[name] = total
        else:
            held.pop(name, None)


# --- how many pods fit --------------------------------------------------------------------------------------------------


def how_many(free: Mapping[str, int], pod_requests: PodRequests) -> int:
    """The number of pods that fit: the scarcest resource decides; a missing or over-used one counts as none."""
    fitting = -1
    for name, amount in pod_requests:
        possible = free.get(name, 0) // amount
        if possible <= 0:
            return 0
        if possible < fitting or fitting < 0:
            fitting = possible
    return fitting


def how_many_beside(free: Mapping[str, int], leader: PodRequests, pod_requests: PodRequests) -> int:
    """The number of pods that fit beside a leader."""
    taken = dict(leader)
    return max(0, min((free.get(name, 0) - taken.get(name, 0)) // amount for name, amount in pod_requests))


def how_many_more(total: Mapping[str, int], takers: Iterable[Mapping[str, int]], pod_requests: PodRequests) -> int:
    """The number of pods that fit into what these takers leave of a total."""
    fitting = ANY_NUMBER
    for name, amount in pod_requests:
        left = total.get(name, 0)
        for taken in takers:
            left -= taken.get(name, 0)
        possible = left // amount
        if possible < fitting:
            fitting = possible
    return max(0, fitting)


def limit(free: Mapping[str, int], pod_requests: PodRequests) -> str:
    """Why not one pod fits: the alphabetically first of the exhausted resources."""
    name = next(name for name, amount in pod_requests if free.get(name, 0) // amount <= 0)
    if name.startswith(INTERFACE):
        return f'bandwidth of interface "{name.removeprefix(INTERFACE)}"'
    return f'resource "{name}"'
