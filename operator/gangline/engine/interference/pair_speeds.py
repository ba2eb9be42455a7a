"""Expected speeds of pairs: what was measured, drawn towards what is usual on that model of card.

A measured mean of n samples counts n, and the prior counts `PRIOR_COUNTS`. The prior of a pair is a linear function of what is
known of both classes, plus what the measured pairs of each class say about it: whether it suffers more than others, and
whether its neighbours do. Without a prior only measured pairs have a speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gangline.engine.model.company import (
    LEAST_SPEED,
    MOST_SPEED,
    CompanyPrior,
    CompanySpeed,
    JobProfile,
)
from gangline.engine.model.devices import Device

#: the prior counts as many samples
PRIOR_COUNTS: Final = 2
#: verdicts that are remembered
_MOST_VERDICTS: Final = 20_000
#: a class of whose pairs so many were measured is half believed to be more, or less, sensitive than the prior says
_CLASS_COUNTS: Final = 2
#: what a prior looks at of a class, in this order. `beside itself`: its speed beside another job of its class. `utilisation`:
#: the part of the card that it uses alone. `speedup`: how much faster its fastest card is than its slowest, as a logarithm.
FEATURES: Final = ("beside itself", "utilisation", "speedup")


@dataclass(frozen=True, slots=True)
class ExpectedSpeed:
    """`measured`: samples of this very pair; 0 = only the prior speaks."""

    speed: float
    measured: int = 0
    out_of_memory: bool = False

    @property
    def slowdown(self) -> float:
        return 1 / self.speed


def within(speed: float) -> float:
    """A speed that is believed."""
    return min(MOST_SPEED, max(LEAST_SPEED, speed))


def _matches(part: str, model: str) -> bool:
    return part.lower() in model.lower()


def features_of(profile: JobProfile | None, gpu: str, mode: str = "") -> tuple[float | None, ...]:
    """The features of a class on a model of card; None where one is not known."""
    if profile is None:
        return (None,) * len(FEATURES)
    own = [each.speed for each in profile.pairs if each.beside == profile.name and _counts(each, gpu, mode)]
    used = [each.utilisation for each in profile.alone if each.utilisation and _matches(each.gpu, gpu)]
    rates = [each.rate for each in profile.alone if each.rate > 0]
    return (
        own[0] if own else None,
        used[0] / 100 if used else None,
        math.log(max(rates) / min(rates)) if len(rates) > 1 else None,
    )


def _counts(pair: CompanySpeed, gpu: str, mode: str) -> bool:
    """Whether a measured pair on one card says something about this model of card, shared in this way."""
    return not pair.on_node and not pair.out_of_memory and _matches(pair.gpu, gpu) and pair.mode in ("", mode)


def by_prior(prior: CompanyPrior, mine: Sequence[float | None], theirs: Sequence[float | None]) -> float:
    """What the prior says of a pair with these features, as it is: it may be below 0."""
    found = prior.constant
    for weights, values in ((prior.mine, mine), (prior.theirs, theirs)):
        for weight, value, usual in zip(weights, values, prior.usual, strict=False):
            found += weight * (usual if value is None else value)
    return found


class PairSpeeds:
    """Expected speeds of pairs of classes. `mark` is a second name of a class, by which placed pods are known."""

    def __init__(
        self,
        profiles: Mapping[str, JobProfile] | None = None,
        priors: Iterable[CompanyPrior] = (),
        mark: Callable[[str], str] = str,
    ) -> None:
        self._profiles, self._mark = dict(profiles or {}), mark
        self._priors = sorted(priors, key=lambda each: (len(each.gpu), each.name), reverse=True)
        named = {*self._profiles, *(pair.beside for each in self._profiles.values() for pair in each.pairs)}
        self._class_of = {name: name for name in named} | {mark(name): name for name in named}
        self._settings: dict[tuple[str, str], _OnModel] = {}
        self._on_nodes = {
            (name, pair.beside): ExpectedSpeed(within(pair.speed), pair.samples)
            for name, profile in self._profiles.items()
            for pair in reversed(profile.pairs)
            if pair.on_node and not pair.out_of_memory
        }
        #: whether company on nodes was measured
        self.has_nodes = bool(self._on_nodes)
        self._verdicts: dict[Hashable, str] = {}

    def amended(self, pairs: Mapping[str, Sequence[CompanySpeed]]) -> PairSpeeds:
        """The same with these pairs by class, which precede those that are known of them."""
        profiles = dict(self._profiles)
        for name, newer in pairs.items():
            old = profiles.get(name, JobProfile(name))
            beside = {(each.beside, each.on_node) for each in newer}
            kept = tuple(each for each in old.pairs if (each.beside, each.on_node) not in beside)
            profiles[name] = JobProfile(name, (*newer, *kept), old.alone)
        return PairSpeeds(profiles, self._priors, self._mark)

    def __bool__(self) -> bool:
        return bool(self._profiles or self._priors)

    def on_card(self, mine: str, beside: str, device: Device) -> ExpectedSpeed | None:
        """The speed of a job of class `mine` beside one of class `beside` on such a card; None: nothing is known of it."""
        return self._on(device).speed(self.class_of(mine), self.class_of(beside))

    def on_node(self, mine: str, beside: str) -> ExpectedSpeed | None:
        """The same for a job on the same node, on whichever card and of whichever model: only where it was measured."""
        return self._on_nodes.get((self.class_of(mine), self.class_of(beside)))

    def verdict(self, key: Hashable, judge: Callable[[], str]) -> str:
        """What `judge` says by these speeds, remembered by `key`: cards with equal residents are judged once."""
        found = self._verdicts.get(key)
        if found is None:
            if len(self._verdicts) >= _MOST_VERDICTS:
                self._verdicts.clear()
            found = self._verdicts[key] = judge()
        return found

    def slowdown_on_card(self, mine: str, others: Iterable[str], device: Device, unknown: float = 1.0) -> float:
        """How many times as slow as alone a pod of class `mine` is on a card beside pods of other classes: the excesses of their
        slowdowns add up. A class is "" where it is not known; `unknown`: what pairs count of which nothing is known.
        """
        pairs = [self.on_card(mine, other, device) if mine and other else None for other in others]
        return max(1.0, 1 + sum((pair.slowdown if pair is not None else unknown) - 1 for pair in pairs))

    def slowdown_on_node(self, mine: str, there: Mapping[str, int]) -> float:
        """The same on a node with so many pods of each class, the pod itself among them."""
        excess = 0.0
        for other, count in there.items():
            pair = self.on_node(mine, other)
            if pair is not None:
                excess += (count - (other == mine)) * (pair.slowdown - 1)
        return max(1.0, 1 + excess)

    def meet_on_node(self, one: str, other: str) -> bool:
        """Whether pods of two classes on one node are known to slow each other down, on whichever cards."""
        return self.on_node(one, other) is not None or self.on_node(other, one) is not None

    def memory_of(self, kind: str, gpu: str) -> int:
        """The measured peak of a class on such a card, in MiB; 0 = not known."""
        profile = self._profiles.get(self.class_of(kind))
        found = [each.memory for each in profile.alone if _matches(each.gpu, gpu)] if profile is not None else []
        return max(found, default=0)

    def class_of(self, kind: str) -> str:
        """The class of a mark; a name is itself."""
        return self._class_of.get(kind, kind)

    def _on(self, device: Device) -> _OnModel:
        key = device.model, device.mode
        found = self._settings.get(key)
        if found is None:
            prior = next(
                (p for p in self._priors if _matches(p.gpu, device.model) and p.mode in ("", device.mode)), None
            )
            found = self._settings[key] = _OnModel(self._profiles, prior, device.model, device.mode)
        return found


class _OnModel:
    """Pairs on one model of card that is shared in one way."""

    def __init__(self, profiles: Mapping[str, JobProfile], prior: CompanyPrior | None, gpu: str, mode: str) -> None:
        self._profiles, self._prior, self._gpu, self._mode = profiles, prior, gpu, mode
        self._features: dict[str, tuple[float | None, ...]] = {}
        self._known: dict[tuple[str, str], ExpectedSpeed | None] = {}
        self._pairs = {
            (name, pair.beside): pair for name, profile in profiles.items() for pair in reversed(self._here(profile))
        }
        self._suffers: dict[str, float] = {}
        self._harms: dict[str, float] = {}
        if prior is not None:
            self._learn_classes()

    def speed(self, mine: str, beside: str) -> ExpectedSpeed | None:
        key = mine, beside
        if key not in self._known:
            self._known[key] = self._estimate(mine, beside)
        return self._known[key]

    def _here(self, profile: JobProfile) -> list[CompanySpeed]:
        """The measured pairs of a class that say something here, the closest first: by model, then by way of sharing."""
        found = [
            pair
            for pair in profile.pairs
            if not pair.on_node and _matches(pair.gpu, self._gpu) and pair.mode in ("", self._mode)
        ]
        return sorted(found, key=lambda pair: (not pair.out_of_memory, -len(pair.gpu), not pair.mode))

    def _estimate(self, mine: str, beside: str) -> ExpectedSpeed | None:
        pair, back = self._pairs.get((mine, beside)), self._pairs.get((beside, mine))
        barred = any(each is not None and each.out_of_memory for each in (pair, back))
        if pair is None and self._prior is None:
            return ExpectedSpeed(LEAST_SPEED, 0, out_of_memory=True) if barred else None
        usual = self._usual(mine, beside)
        if pair is None or pair.out_of_memory:
            return ExpectedSpeed(within(usual if usual is not None else LEAST_SPEED), 0, barred)
        if usual is None:
            return ExpectedSpeed(within(pair.speed), pair.samples, barred)
        drawn = (PRIOR_COUNTS * within(usual) + pair.samples * pair.speed) / (PRIOR_COUNTS + pair.samples)
        return ExpectedSpeed(within(drawn), pair.samples, barred)

    def _usual(self, mine: str, beside: str) -> float | None:
        if self._prior is None:
            return None
        expected = by_prior(self._prior, self._features_of(mine), self._features_of(beside))
        return expected + self._suffers.get(mine, 0.0) + self._harms.get(beside, 0.0)

    def _features_of(self, name: str) -> tuple[float | None, ...]:
        found = self._features.get(name)
        if found is None:
            found = self._features[name] = features_of(self._profiles.get(name), self._gpu, self._mode)
        return found

    def _learn_classes(self) -> None:
        """How far the measured pairs of each class are from the prior: as the one that is slowed, then as the one beside."""
        assert self._prior is not None
        left = {
            key: pair.speed - by_prior(self._prior, self._features_of(key[0]), self._features_of(key[1]))
            for key, pair in self._pairs.items()
            if not pair.out_of_memory
        }
        for side, learned in ((0, self._suffers), (1, self._harms)):
            found: dict[str, list[float]] = {}
            for key, rest in left.items():
                found.setdefault(key[side], []).append(rest)
            learned.update((name, math.fsum(each) / (len(each) + _CLASS_COUNTS)) for name, each in found.items())
            left = {key: rest - learned[key[side]] for key, rest in left.items()}
