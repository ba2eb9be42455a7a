"""What is measured of classes of jobs, and the JobProfiles that say it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any, Final, Protocol

from gangline.api.profiles import LONGEST_GPU, written_pair
from gangline.engine.model import CompanySpeed, JobProfile, Mode, SpeedAlone

Json = dict[str, Any]

#: classes that are probed at a time: pairs are their square
MOST_CLASSES: Final = 40


class ProbeError(Exception):
    """A class could not be measured; the message says which, and why."""


class Prober(Protocol):
    """Measures jobs on one model of card, shared in one way."""

    @property
    def gpu(self) -> str:
        """The model of the card."""
        ...

    @property
    def sharing(self) -> Mode: ...

    def alone(self, kind: str) -> SpeedAlone:
        """One job of the class on a card for itself. Raises ProbeError."""
        ...

    def together(self, one: str, other: str) -> tuple[float, float] | None:
        """The rates of two jobs on one card, in steps per second; None where one of both runs out of memory. Raises
        ProbeError.
        """
        ...


def measure(kinds: Sequence[str], prober: Prober, said: Callable[[str], None] = lambda _: None) -> Iterator[JobProfile]:
    """Each class alone, then each pair, and each with itself. Raises ProbeError, also for a class that makes no steps alone."""
    gpu, sharing = prober.gpu[:LONGEST_GPU], prober.sharing
    alone: dict[str, SpeedAlone] = {}
    pairs: dict[str, list[CompanySpeed]] = {kind: [] for kind in kinds}
    for kind in pairs:
        said(f"{kind} alone")
        alone[kind] = prober.alone(kind)
        if alone[kind].rate <= 0:
            raise ProbeError(f"{kind}: makes no steps alone")
    for one, other in combinations_with_replacement(pairs, 2):
        said(f"{one} beside {other}")
        rates = prober.together(one, other)
        directions = [(one, other, 0)] if one == other else [(one, other, 0), (other, one, 1)]
        for mine, beside, place in directions:
            if rates is None:
                pairs[mine].append(CompanySpeed(beside, gpu, sharing, out_of_memory=True))
                continue
            # of two jobs of one class, both are measurements
            own = sum(rates) / 2 if one == other else rates[place]
            samples = 2 if one == other else 1
            pairs[mine].append(CompanySpeed(beside, gpu, sharing, speed=own / alone[mine].rate, samples=samples))
    for kind in pairs:
        yield JobProfile(kind, tuple(pairs[kind]), (alone[kind],))


def manifest(profile: JobProfile, family: str = "") -> Json:
    """The JobProfile as it is applied."""
    name = name_of(profile.name)
    spec: Json = {} if name == profile.name else {"class": profile.name}
    if family and family != profile.name:
        spec["family"] = family
    spec["alone"] = [_alone(each) for each in profile.alone]
    spec["pairs"] = [written_pair(each) for each in profile.pairs]
    return {"apiVersion": "gangline.io/v1alpha1", "kind": "JobProfile", "metadata": {"name": name}, "spec": spec}


def name_of(kind: str) -> str:
    """The name of the JobProfile of a class: the class where it can be one, else with a digest."""
    plain = re.sub(r"[^a-z0-9.-]+", "-", kind.lower()).strip("-.")
    plain = re.sub(r"[-.]*\.[-.]*", ".", plain)
    if plain == kind and len(plain) <= 253:
        return plain
    return f"{plain[:200].strip('-.')}-{hashlib.sha256(kind.encode()).hexdigest()[:8]}".lstrip("-.")


def _alone(each: SpeedAlone) -> Json:
    found: Json = {"gpu": each.gpu, "rate": f"{each.rate:.4g}" if each.rate < 1e4 else str(round(each.rate))}
    if each.memory:
        found["memory"] = f"{each.memory}Mi"
    if each.utilisation:
        found["utilisation"] = min(100, each.utilisation)
    if each.watts:
        found["watts"] = each.watts
    return {key: value for key, value in found.items() if value}


# --- from a file ------------------------------------------------------------------------------------------------------


class FileProber:
    """Measurements that somebody made before, see `gangline.forecast.pairs.pair_file`."""

    def __init__(self, profiles: Mapping[str, JobProfile], gpu: str) -> None:
        self._profiles, self.gpu = profiles, gpu
        self.sharing: Mode = ""

    def alone(self, kind: str) -> SpeedAlone:
        profile = self._profiles.get(kind)
        found = [each for each in profile.alone if each.gpu == self.gpu] if profile is not None else []
        if not found:
            raise ProbeError(f"{kind}: the file has no such class on {self.gpu}")
        return found[0]

    def together(self, one: str, other: str) -> tuple[float, float] | None:
        mine, theirs = self._pair(one, other), self._pair(other, one)
        if mine.out_of_memory or theirs.out_of_memory:
            return None
        return mine.speed * self.alone(one).rate, theirs.speed * self.alone(other).rate

    def _pair(self, mine: str, beside: str) -> CompanySpeed:
        for pair in self._profiles[mine].pairs:
            if pair.gpu == self.gpu and pair.beside == beside:
                return pair
        raise ProbeError(f"{mine} beside {beside}: the file has no such pair on {self.gpu}")
