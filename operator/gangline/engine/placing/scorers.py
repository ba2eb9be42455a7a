"""Scorers: how good a place is for a pod, in points from 0 to 100.

An absolute scorer measures a place by itself, in ten thousandths of a point, and is rounded down to whole points. A relative one
names a cost; the cheapest of all hosts that may get the pod has 100 points, the dearest none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

from gangline.engine.interference.joining import CompanyShare
from gangline.engine.model import READING, TAKEN, accelerators
from gangline.engine.placing.hosts import CPU, MEMORY, Host, HostPlace, PodRequest
from gangline.engine.placing.own_scorers import OWN_SCORERS, Fragments, points
from gangline.engine.topology.policy_filter import kind_mark, kinds_on, number

POINT: Final = 10_000
MOST: Final = 100 * POINT
#: the name of accelerators in weights: their compute, by cards where these are known
GPU: Final = "gpu"

#: annotations of nodes: the datasets that they have near, with commas between them, and the Mbit/s at which they get others
DATASETS: Final = "gangline.io/datasets"
DOWNLOAD: Final = "gangline.io/download-mbps"
#: characters of the longest list of datasets that is read
_LONGEST: Final = 8192

#: What the user wrote: numbers and words by name.
Args: TypeAlias = Mapping[str, object]


@dataclass(slots=True)
class Field:
    """What scorers know of all hosts together: the largest host by resource, and the pods that are typical."""

    largest: dict[str, int] = field(default_factory=dict[str, int])
    fragments: Fragments = field(default_factory=lambda: Fragments({}))
    #: image -> bytes, of all images that some host has
    images: dict[str, int] = field(default_factory=dict[str, int])

    def grow(self, host: Host) -> None:
        for name in (CPU, MEMORY, GPU):
            self.largest[name] = max(self.largest.get(name, 0), _total(host, name))
        for image, size in host.images.items():
            if size > self.images.get(image, 0):
                self.images[image] = size


Measure: TypeAlias = Callable[[PodRequest, HostPlace, Field], int]


@dataclass(frozen=True, slots=True)
class Scorer:
    measure: Measure
    #: `measure` is a cost
    relative: bool = False
    #: it looks at cards, so that places on one host may differ
    by_card: bool = False


def _total(host: Host, name: str) -> int:
    return host.card_total() if name == GPU else host.total.get(name, 0)


def _left(ask: PodRequest, place: HostPlace, name: str) -> int:
    if name == GPU:
        return sum(place.milli_after(ask))
    return max(0, place.host.free.get(name, 0) - ask.amount(name))


# --- how full -----------------------------------------------------------------------------------------------------------

#: accelerators are what is scarce
_WEIGHTS: Final = {CPU: 1, MEMORY: 1, GPU: 4}


def fullness(place: HostPlace, ask: PodRequest, weights: Mapping[str, int]) -> int:
    """The weighted mean of what would be used of each resource that the host has, in ten thousandths of a point."""
    used = weight_of_all = 0
    for name, weight in weights.items():
        total = _total(place.host, name)
        if total > 0 and weight > 0:
            used += weight * (MOST - MOST * min(total, _left(ask, place, name)) // total)
            weight_of_all += weight
    return used // weight_of_all if weight_of_all else 0


def _pack(args: Args) -> Scorer:
    weights = _weights(args)
    return Scorer(lambda ask, place, _: fullness(place, ask, weights))


def _spread(args: Args) -> Scorer:
    weights = _weights(args)
    return Scorer(lambda ask, place, _: MOST - fullness(place, ask, weights))


def _best_fit(args: Args) -> Scorer:
    """The least left, measured on the largest host: of two hosts of which as large a part is used, the smaller one."""
    weights = _weights(args, {CPU: 1, GPU: 1})

    def measure(ask: PodRequest, place: HostPlace, known: Field) -> int:
        left = everything = 0
        for name, weight in weights.items():
            largest = known.largest.get(name, 0)
            if largest > 0:
                left += weight * MOST * _left(ask, place, name) // largest
                everything += weight
        return MOST - left // everything if everything else 0

    return Scorer(measure)


def _dot_product(args: Args) -> Scorer:
    """What is free and what is asked, resource by resource: hosts whose free amounts have the shape of the pod."""
    weights = _weights(args, {CPU: 1, GPU: 1})

    def measure(ask: PodRequest, place: HostPlace, known: Field) -> int:
        found = everything = 0
        for name, weight in weights.items():
            largest = known.largest.get(name, 0)
            if largest > 0:
                free = sum(place.host.card_milli()) if name == GPU else max(0, place.host.free.get(name, 0))
                asked = ask.card_milli if name == GPU else ask.amount(name)
                found += weight * (MOST * min(free, largest) // largest) * min(asked, largest) // largest
                everything += weight
        return found // everything if everything else 0

    return Scorer(measure)


def _weights(args: Args, unless: Mapping[str, int] = _WEIGHTS) -> dict[str, int]:
    given = args.get("weights")
    return dict(cast("Mapping[str, int]", given)) if isinstance(given, Mapping) else dict(unless)


# --- cards --------------------------------------------------------------------------------------------------------------


def _fragmentation(_: Args) -> Scorer:
    def measure(ask: PodRequest, place: HostPlace, known: Field) -> int:
        host = place.host
        cpu = host.free.get(CPU, 0)
        before = known.fragments.on(cpu, host.card_milli())
        after = known.fragments.on(cpu - ask.amount(CPU), place.milli_after(ask))
        return points(after - before) * POINT

    return Scorer(measure, by_card=True)


def _card_pack(_: Args) -> Scorer:
    """How full the cards would be: by memory where the share is one of memory, otherwise by compute."""

    def measure(ask: PodRequest, place: HostPlace, _: Field) -> int:
        used = total = 0
        for position, share in place.seats(ask):
            room = place.host.cards[position]
            part = share.of(room.device)
            if part is not None and part.memory and room.device.memory:
                used += MOST * (room.device.memory - room.memory + part.memory) // room.device.memory
            elif part is not None:
                used += MOST * (room.device.milli - room.milli + part.milli) // max(1, room.device.milli)
            total += 1
        return min(MOST, used // total) if total else 0

    return Scorer(measure, by_card=True)


def _card_balance(_: Args) -> Scorer:
    """The less the neighbours on its cards use all together, the better; 0 % use has 100 points, 100 % has 50. Where it is not
    known who sits on which card, all of the host's pods are neighbours, and share all its accelerators.
    """

    def measure(ask: PodRequest, place: HostPlace, _: Field) -> int:
        if not (place.host.cards and place.host.knows_cards_of_pods):
            return MOST * 100 // (100 + place.host.busy() // max(1, accelerators(place.host.total)))
        return _calm(ask, place)

    return Scorer(measure, by_card=True)


def _calm(ask: PodRequest, place: HostPlace) -> int:
    busy = [place.host.cards[position].utilisation for position, _ in place.seats(ask)]
    return MOST * 100 // (100 + sum(busy) // len(busy)) if busy else 0


def _card_use(_: Args) -> Scorer:
    """The less the neighbours on its cards use, the better: between the cards of one host, or of hosts that are equal."""
    return Scorer(lambda ask, place, _: _calm(ask, place), by_card=True)


def _class_affinity(_: Args) -> Scorer:
    """Cards with the same kind of work only are best, then cards without any, then the others; hosts where it is not known
    who sits on which card.
    """

    def measure(ask: PodRequest, place: HostPlace, _: Field) -> int:
        if not (place.host.cards and place.host.knows_cards_of_pods):
            own, others = place.host.others_kinds(ask.kind)
            return 0 if others else (100 if own else 50) * POINT
        return _alike(ask, place)

    return Scorer(measure, by_card=True)


def _alike(ask: PodRequest, place: HostPlace) -> int:
    own = {ask.kind, kind_mark(ask.kind) if ask.kind else ""}
    found: list[int] = []
    for position, _share in place.seats(ask):
        residents = place.host.cards[position].residents
        alike = all(resident.kind in own for resident in residents)
        found.append((100 if alike else 0) if residents else 50)
    return min(found, default=0) * POINT


def _interference(_: Args) -> Scorer:
    """How much faster all pods are together once the pod is there: 100 points where it is as fast as alone and slows nobody, 50
    where it gains nothing, 0 where it costs as much as it could be worth.
    """

    def measure(ask: PodRequest, place: HostPlace, _: Field) -> int:
        there, found = kinds_on(place.host.free), list[float]()
        for position, share in place.seats(ask):
            if isinstance(share, CompanyShare):
                room = place.host.cards[position]
                found.append(share.company.gain(room.device, room.kinds, there))
        return _within(MOST * (1 + sum(found) / len(found)) / 2) if found else _NOT_KNOWN

    return Scorer(measure, by_card=True)


def _share_affinity(_: Args) -> Scorer:
    """The part of its cards where pods of its shares' affinity sit."""

    def measure(ask: PodRequest, place: HostPlace, _: Field) -> int:
        if not any(share.affinity for share in ask.shares):
            return 0
        near = [place.host.cards[position].wants(share) for position, share in place.seats(ask)]
        return MOST * sum(near) // len(near) if near else 0

    return Scorer(measure, by_card=True)


def _card_class(_: Args) -> Scorer:
    """Cards with the same kind of work only, then cards without any: of one host, or of hosts that are equal."""
    return Scorer(lambda ask, place, _: _alike(ask, place), by_card=True)


# --- what is near -------------------------------------------------------------------------------------------------------


def _image_locality(_: Args) -> Scorer:
    """The part of its images that the host has, by bytes. An image that no host has makes no difference."""

    def measure(ask: PodRequest, place: HostPlace, known: Field) -> int:
        sizes = [(image, size or known.images.get(image, 0)) for image, size in ask.images]
        total = sum(size for _, size in sizes)
        here = sum(min(size, place.host.images.get(image, 0)) for image, size in sizes)
        return MOST * here // total if total else 0

    return Scorer(measure)


def run_seconds(ask: PodRequest, host: Host) -> int:
    """How long the pod takes there: its run, at the speed of the host, after what it has to download."""
    near = host.annotations.get(DATASETS, "")[:_LONGEST].split(",") if ask.data else ()
    missing = sum(0 if name in near else max(0, size - host.data.get(name, 0)) for name, size in ask.data)
    download = host.download or _number(host.annotations.get(DOWNLOAD), 0)
    if missing and not download:
        return 1 << 40
    speed = _number(host.labels.get("gangline.io/speed"), 100)
    return ask.seconds * 100 // max(1, speed) + (missing * 8 // (download * 1_000_000) if missing else 0)


def _data_locality(_: Args) -> Scorer:
    return Scorer(lambda ask, place, _: run_seconds(ask, place.host), relative=True)


def _network_cost(args: Args) -> Scorer:
    """The distance to something, as a label of the nodes says (a round trip in milliseconds, say)."""
    label = str(args.get("label", "gangline.io/network-cost"))
    return Scorer(lambda ask, place, _: _number(place.host.labels.get(label), 1 << 30), relative=True)


def _node_label(args: Args) -> Scorer:
    """Nodes with a label, or with one value of it, are better than others."""
    label, value = str(args.get("label", "")), str(args.get("value", ""))

    def measure(ask: PodRequest, place: HostPlace, _: Field) -> int:
        found = place.host.labels.get(label)
        return MOST if found is not None and (not value or found == value) else 0

    return Scorer(measure)


def _node_affinity(_: Args) -> Scorer:
    """The pod's own preferred affinity: a point for each unit of weight."""

    def measure(ask: PodRequest, place: HostPlace, _: Field) -> int:
        if not ask.selection.preferred:
            return 0
        return POINT * ask.selection.judge(place.host.name, place.host.labels, place.host.taints)[1]

    return Scorer(measure)


def _bandwidth(args: Args) -> Scorer:
    """What would be left of a resource that counts bandwidth: the least is best, so that wide links stay free."""
    resource = str(args.get("resource", ""))

    def measure(ask: PodRequest, place: HostPlace, _: Field) -> int:
        return max(0, place.host.free.get(resource, 0) - ask.amount(resource))

    return Scorer(measure, relative=True)


# --- measurements -------------------------------------------------------------------------------------------------------

#: where nobody measures: neither good nor bad
_NOT_KNOWN: Final = MOST // 2


def _node_metric(args: Args) -> Scorer:
    """A number in an annotation of nodes: 100 points for `least` and none for `most`, in between in proportion."""
    key = str(args.get("annotation", ""))
    least, most = _whole(args, "least", 0), _whole(args, "most", 100)

    def measure(ask: PodRequest, place: HostPlace, _: Field) -> int:
        found = number(place.host.annotations.get(key))
        if found is None or least == most:
            return _NOT_KNOWN
        return _within(MOST * (most - found) / (most - least))

    return Scorer(measure)


def _target_load(args: Args) -> Scorer:
    """Percent of CPU in use, with what the pod requests and what was placed since: best at the target, none above 100 %; a rising
    line before the target, a falling one after it.
    """
    key, target = str(args.get("annotation", "")), _whole(args, "target", 40)

    def measure(ask: PodRequest, place: HostPlace, _: Field) -> int:
        host = place.host
        found = number(host.annotations.get(key))
        if found is None:
            return _NOT_KNOWN
        return _within(POINT * target_points(found + _not_measured(ask, host, key), target))

    return Scorer(measure)


def _not_measured(ask: PodRequest, host: Host, key: str) -> float:
    """Percent of the host's CPU that is requested and not in a measurement yet: by the pod, by pods of its gang that were dealt
    out before it, and by all that were placed since, where it is known what was taken then.
    """
    total = host.total.get(CPU, 0)
    if not total:
        return 0
    then = number(host.annotations.get(key + TAKEN))
    since = 0 if then is None else total - host.free.get(CPU, 0) - then
    return 100 * (ask.amount(CPU) + max(host.dealt_cpu, since)) / total


def target_points(load: float, target: int) -> float:
    """The points of a load in percent."""
    if load <= target:
        return (100 - target) * load / target + target if target else 100.0
    return target * (100 - load) / (100 - target) if load <= 100 and target < 100 else 0.0


def _risk_balance(args: Args) -> Scorer:
    """Mean load and its deviation, both in percent: of two nodes, the steadier one may be the busier one. To a mean that a
    telemetry rule measures, the pod is added, and what was placed since.
    """
    mean, spread = str(args.get("annotation", "")), str(args.get("deviation", ""))
    sensitivity = _whole(args, "sensitivity", 1)

    def measure(ask: PodRequest, place: HostPlace, _: Field) -> int:
        mu, sigma = (number(place.host.annotations.get(key)) for key in (mean, spread))
        if mu is None or sigma is None:
            return _NOT_KNOWN
        if mean.startswith(READING):
            mu += _not_measured(ask, place.host, mean)
        return _within(MOST * (1 - (mu / 100 + (sigma / 100) ** (1 / sensitivity)) / 2))

    return Scorer(measure)


def _within(points: float) -> int:
    """Rounded to a thousandth of a point first: what is 65 by the rules is 65, and not 64.99999."""
    return max(0, min(MOST, round(points / 10) * 10))


def _whole(args: Args, name: str, unless: int) -> int:
    found = args.get(name)
    return found if isinstance(found, int) else unless


# --- power and heat -----------------------------------------------------------------------------------------------------


def _power(_: Args) -> Scorer:
    """What the host draws more with the pod: of the cards that it wakes, and of the host where nobody works yet."""

    def measure(ask: PodRequest, place: HostPlace, _: Field) -> int:
        host = place.host
        seated = {position for position, _ in place.seats(ask)}
        if seated:
            woken = sum(host.cards[position].untouched for position in seated)
        else:
            woken = ask.power.accelerators
        return woken * host.watts_of(ask) + (host.idle_watts if host.sleeps else 0)

    return Scorer(measure, relative=True, by_card=True)


def _thermal(args: Args) -> Scorer:
    """What is left of the cap of its power domain with the pod: 100 points for all of it. A node that is too hot has none."""
    key, most = str(args.get("annotation", "")), _whole(args, "most", 100)

    def measure(ask: PodRequest, place: HostPlace, _: Field) -> int:
        host = place.host
        heat = number(host.annotations.get(key)) if key else None
        if heat is not None and heat > most:
            return 0
        if host.power is None:
            return _NOT_KNOWN
        node, power = host.power
        watts = power.watts(node, ask.power)
        left = [MOST * (each.cap - each.used - watts) // max(1, each.cap) for each in power.domains_of(node)]
        return _within(min(left)) if left else _NOT_KNOWN

    return Scorer(measure)


# --- scorers of users ---------------------------------------------------------------------------------------------------


def _plugin(args: Args) -> Scorer:
    """A scorer that somebody else wrote. One that is not there, or not well, has the same points for all hosts."""
    name = str(args.get("plugin", ""))
    return Scorer(lambda ask, place, _: OWN_SCORERS.points(name, ask, place.host))


def _number(text: str | None, unless: int) -> int:
    """A whole number of at most nine digits."""
    return int(text) if text is not None and len(text) <= 9 and text.isascii() and text.isdigit() else unless


#: By the names of QueuePolicy.spec.placement.scores.
SCORERS: Final[Mapping[str, Callable[[Args], Scorer]]] = {
    "Pack": _pack,
    "Spread": _spread,
    "BestFit": _best_fit,
    "DotProduct": _dot_product,
    "Fragmentation": _fragmentation,
    "Interference": _interference,
    "CardPack": _card_pack,
    "CardBalance": _card_balance,
    "CardClass": _card_class,
    "CardUse": _card_use,
    "ClassAffinity": _class_affinity,
    "ImageLocality": _image_locality,
    "DataLocality": _data_locality,
    "NetworkCost": _network_cost,
    "NodeAffinity": _node_affinity,
    "ShareAffinity": _share_affinity,
    "NodeLabel": _node_label,
    "Bandwidth": _bandwidth,
    "NodeMetric": _node_metric,
    "TargetLoad": _target_load,
    "RiskBalance": _risk_balance,
    "Power": _power,
    "Thermal": _thermal,
    "Plugin": _plugin,
}
