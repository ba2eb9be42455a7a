"""Company: how fast classes of jobs run beside others on a card or on a node, as facts. A class is what pods say in their
annotation gangline.io/class. A speed is a part of the speed alone: 0.5 is half as fast, a slowdown of 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal, TypeAlias

from gangline.engine.model.devices import Mode
from gangline.engine.model.units import Millis

#: What happens to pods of whose company nothing is known. "Alone": they share no card. "Probe": they share one with one pod at
#: most, so that what is measured is a pair. "Share": they share as others do.
Unknown: TypeAlias = Literal["Alone", "Probe", "Share"]

#: The least and the highest speed that is believed. A job may gain a little from company, by caches or by clocks.
LEAST_SPEED: Final = 0.05
MOST_SPEED: Final = 1.1


def class_digest(name: str) -> str:
    """A class in marks of ledgers: of letters that no resource of accelerators has."""
    return blake2b(name.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class CompanySpeed:
    """How fast a class runs beside one job of another class: one direction of a pair."""

    #: the other class
    beside: str
    #: part of the name of the card's model, in any case; "" = any model
    gpu: str = ""
    #: "" = however the card is shared
    mode: Mode = ""
    #: the other is on the same node, on whichever card; False: on the same card
    on_node: bool = False
    speed: float = 1.0
    #: measurements of which `speed` is the mean
    samples: int = 1
    #: it was killed for lack of memory: the pair is not tried again
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class SpeedAlone:
    """What is known of a class on a model of card where it has the card for itself. 0 = not known."""

    gpu: str = ""
    #: steps per second
    rate: float = 0.0
    #: MiB at its peak
    memory: int = 0
    #: percent of the card's compute that it uses
    utilisation: int = 0
    watts: int = 0


@dataclass(frozen=True, slots=True)
class JobProfile:
    """What was measured of a class: a fact, its key is the class."""

    name: str
    pairs: tuple[CompanySpeed, ...] = ()
    alone: tuple[SpeedAlone, ...] = ()


@dataclass(frozen=True, slots=True)
class CompanyPrior:
    """What to expect of pairs that nobody measured: a fact, its key is `name`. A linear function of what is known of both classes
    (`engine.interference.pair_speeds.FEATURES`).
    """

    name: str
    gpu: str = ""
    mode: Mode = ""
    constant: float = 1.0
    #: by feature: the weights of the class whose speed it is, and of the other; and what counts where a feature is not known
    mine: tuple[float, ...] = ()
    theirs: tuple[float, ...] = ()
    usual: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class SlowedRun:
    """What a running workload had lost to company by `at`: a fact, its key is `workload`. It did so much less by then than it
    would have done alone. Companions that have left since its start are known only by this.
    """

    workload: str
    uid: str
    at: Millis
    lost: Millis


@dataclass(frozen=True, slots=True)
class CompanyPolicy:
    """Whom pods may have as company (QueuePolicy.spec.placement.interference)."""

    #: no pod of a known pair is slowed more than this
    max_slowdown: float = 1.25
    #: pods share a card only where all together are this much faster than the better side alone
    min_gain: float = 1.1
    unknown: Unknown = "Alone"
