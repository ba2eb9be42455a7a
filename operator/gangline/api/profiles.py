"""JobProfiles as plain values: what was measured of a class of jobs, alone and beside others. Pure functions on JSON.

Whoever writes a JobProfile may have made a mistake, or mean harm, and what a status says was learned from reports of jobs. So
every number is within bounds here, whether or not the schema was in force when the object was stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from gangline.api import quantity
from gangline.api.quantity import QuantityError
from gangline.api.sharing.traits import kind as class_name
from gangline.api.spec_fields import SpecError, a_list, an_object
from gangline.api.unchecked import listing, mapping
from gangline.engine.model import CompanySpeed, JobProfile, Mode, SpeedAlone
from gangline.kube.resources import Json

#: pairs, and models of cards, of one JobProfile
MOST_PAIRS: Final = 512
MOST_ALONE: Final = 16
#: JobProfiles that are read: the first by age
MOST_PROFILES: Final = 500
#: how much slower a job may be beside another one, and by how much company may speed it up
MOST_SLOWDOWN: Final = 20.0
LEAST_SLOWDOWN: Final = 0.9
MOST_SAMPLES: Final = 1_000_000
LONGEST_GPU: Final = 63
LONGEST_FAMILY: Final = 63
#: steps per second
_MOST_RATE: Final = 1e9
_MIB: Final = 1 << 20
_MOST_MEMORY: Final = 1 << 50
_MOST_WATTS: Final = 10_000

#: how cards are shared, in the words of the API
SHARING: Final[dict[str, Mode]] = {
    "": "",
    "TimeSlice": "TimeSlice",
    "MPS": "MPS",
    "Software": "Software",
    "Claim": "Claim",
}
ON_CARD, ON_NODE = "Card", "Node"


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """What a JobProfile says. `learned` are the pairs of its status; `declared` those of its spec, which precede them."""

    profile: JobProfile
    family: str
    learned: tuple[CompanySpeed, ...] = ()

    @property
    def whole(self) -> JobProfile:
        """The profile with what was learned of pairs that nobody declared."""
        known = {_key(each) for each in self.profile.pairs}
        more = tuple(each for each in self.learned if _key(each) not in known)
        return JobProfile(self.profile.name, (*self.profile.pairs, *more), self.profile.alone)


def _key(pair: CompanySpeed) -> tuple[str, str, Mode, bool]:
    return pair.beside, pair.gpu.lower(), pair.mode, pair.on_node


def profile(obj: Json) -> ProfileFacts:
    """A JobProfile. Raises SpecError, which names the field. What of the status cannot be read is left out."""
    spec = an_object(obj.get("spec"), "spec")
    name = spec.get("class")
    if name is None:
        name = an_object(obj.get("metadata"), "metadata").get("name")
    if not isinstance(name, str) or class_name(name) is None:
        raise SpecError("spec.class", "must be a class of jobs, as in the annotation gangline.io/class")
    family = _text(spec.get("family"), "spec.family", LONGEST_FAMILY) or name
    alone = tuple(
        _alone(each, f"spec.alone[{i}]") for i, each in enumerate(a_list(spec.get("alone"), "spec.alone", MOST_ALONE))
    )
    pairs = tuple(
        _pair(each, f"spec.pairs[{i}]") for i, each in enumerate(a_list(spec.get("pairs"), "spec.pairs", MOST_PAIRS))
    )
    found = JobProfile(name, tuple(_first_of_each(pairs)), alone)
    return ProfileFacts(found, family, tuple(_first_of_each(_learned(obj.get("status")))))


def _first_of_each(pairs: tuple[CompanySpeed, ...]) -> Iterator[CompanySpeed]:
    seen: set[tuple[str, str, Mode, bool]] = set()
    for pair in pairs:
        if _key(pair) not in seen:
            seen.add(_key(pair))
            yield pair


def _learned(status: Any) -> tuple[CompanySpeed, ...]:
    found: list[CompanySpeed] = []
    for i, each in enumerate(listing(mapping(status).get("pairs"))[:MOST_PAIRS]):
        try:
            found.append(_pair(each, f"status.pairs[{i}]"))
        except SpecError:
            continue
    return tuple(found)


def written_pair(pair: CompanySpeed) -> Json:
    """A pair as JobProfiles have it."""
    found: Json = {"beside": pair.beside}
    if pair.gpu:
        found["gpu"] = pair.gpu
    if pair.mode:
        found["sharing"] = pair.mode
    if pair.on_node:
        found["on"] = ON_NODE
    if pair.out_of_memory:
        found["outOfMemory"] = True
    else:
        found["slowdown"] = f"{min(MOST_SLOWDOWN, max(LEAST_SLOWDOWN, 1 / pair.speed)):.3f}"
        found["samples"] = pair.samples
    return found


def _pair(value: Any, path: str) -> CompanySpeed:
    said = an_object(value, path)
    beside = said.get("beside")
    if not isinstance(beside, str) or class_name(beside) is None:
        raise SpecError(f"{path}.beside", "must be a class of jobs")
    sharing, on = said.get("sharing") or "", said.get("on") or ON_CARD
    if sharing not in SHARING:
        raise SpecError(f"{path}.sharing", f"must be one of {', '.join(each for each in SHARING if each)}")
    if on not in (ON_CARD, ON_NODE):
        raise SpecError(f"{path}.on", f"must be {ON_CARD} or {ON_NODE}")
    ran_out = said.get("outOfMemory") or False
    if not isinstance(ran_out, bool):
        raise SpecError(f"{path}.outOfMemory", "must be true or false")
    slowdown = _number(said.get("slowdown"), f"{path}.slowdown", LEAST_SLOWDOWN, MOST_SLOWDOWN)
    if (slowdown is None) != ran_out:
        raise SpecError(f"{path}.slowdown", "give slowdown, or outOfMemory: true")
    samples = _whole(said.get("samples"), f"{path}.samples", 1, MOST_SAMPLES)
    return CompanySpeed(
        beside=beside,
        gpu=_text(said.get("gpu"), f"{path}.gpu", LONGEST_GPU),
        mode=SHARING[sharing],
        on_node=on == ON_NODE,
        speed=1.0 if slowdown is None else 1 / slowdown,
        samples=1 if samples is None else samples,
        out_of_memory=ran_out,
    )


def _alone(value: Any, path: str) -> SpeedAlone:
    said = an_object(value, path)
    memory = _number(said.get("memory"), f"{path}.memory", 0, _MOST_MEMORY)
    return SpeedAlone(
        gpu=_text(said.get("gpu"), f"{path}.gpu", LONGEST_GPU),
        rate=_number(said.get("rate"), f"{path}.rate", 0, _MOST_RATE) or 0.0,
        memory=0 if memory is None else math.ceil(memory / _MIB),
        utilisation=_whole(said.get("utilisation"), f"{path}.utilisation", 0, 100) or 0,
        watts=_whole(said.get("watts"), f"{path}.watts", 0, _MOST_WATTS) or 0,
    )


def _number(value: Any, path: str, least: float, most: float) -> float | None:
    if value is None:
        return None
    try:
        found = quantity.parse_number(value)
    except QuantityError:
        found = math.nan
    if not least <= found <= most:
        raise SpecError(path, f"must be a number from {least:g} to {most:g}")
    return found


def _whole(value: Any, path: str, least: int, most: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise SpecError(path, f"must be a whole number from {least} to {most}")
    return value


def _text(value: Any, path: str, longest: int) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise SpecError(path, f"must be a text of at most {longest} characters")
    return value
