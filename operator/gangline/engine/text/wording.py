"""Moments and spans for users: coarse enough to stay the same while nothing relevant changes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from gangline.engine.model import Millis, PodSet

# --- accelerators -----------------------------------------------------------------------------------------------------
# Which resources are accelerators: what "GPUs" means in sizes, shares, forecasts and tables.


#: By name, since Kubernetes has no kinds of devices. Parts of a shared GPU (memory, cores, percent, thousandths) are not counted
#: again; network cards, licenses and the like are not accelerators.
_NAMES = re.compile(
    r"gpu(?![-_.]?(?:mem|core|percent|milli))|/(?:mig-|[tnh]pu|mlu|dcu|gaudi|neuron|i915|xe$|ascend)|furiosa\.ai/|rebellions\.ai/",
    re.IGNORECASE,
)


@lru_cache(maxsize=1024)
def is_accelerator(resource: str) -> bool:
    return _NAMES.search(resource) is not None


def accelerators(amounts: Mapping[str, int]) -> int:
    """The number of accelerators among these amounts by resource. Those of cards (`engine.cards`), whose names have a sign that
    those of resources have not, are none.
    """
    return sum(amount for resource, amount in amounts.items() if "#" not in resource and is_accelerator(resource))


def accelerators_of(pod_sets: Iterable[PodSet]) -> int:
    """The number of accelerators that all pods of these pod sets ask for."""
    return sum(pod_set.count * accelerators(pod_set.requests) for pod_set in pod_sets)


# --- wording ----------------------------------------------------------------------------------------------------------


_FAR: Millis = 1 << 61
_MINUTE: Millis = 60_000
_QUARTER: Millis = 15 * _MINUTE


def moment_text(moment: Millis) -> str:
    """A moment in UTC, rounded up to a quarter of an hour; "at an unknown time" for None."""
    if moment >= _FAR:
        return "at an unknown time"
    return f"by {_written(moment, _QUARTER)}"


def span_text(time: Millis) -> str:
    """A span as Kubernetes prints durations, in at most two units: 45s, 12m30s, 3h5m, 2d4h."""
    seconds = max(0, time) // 1000
    for unit, size, smaller, small in (("d", 86_400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            rest = seconds % size // small
            return f"{seconds // size}{unit}" + (f"{rest}{smaller}" if rest else "")
    return f"{seconds}s"


def minute_text(moment: Millis) -> str:
    """A certain moment in UTC, rounded up to a minute."""
    return _written(moment, _MINUTE)


def _written(moment: Millis, step: Millis) -> str:
    rounded = -(-moment // step) * step
    return f"{datetime.fromtimestamp(rounded / 1000, UTC):%Y-%m-%d %H:%M} UTC"


# --- fixes ------------------------------------------------------------------------------------------------------------
# Kueue's quirks that Gangline can correct, each under a name, per ClusterQueue. All are off by default.
#
# `ClusterQueue.fixes` and `Settings.fixes` name them. `docs/engine.md` shows the harm and the cure of each.


#: With preference PreemptionOverBorrowing, a flavor where one resource fits by borrowing and another needs preemption counts
#: as fitting: no victims are looked for and the gang is skipped, cycle after cycle. Fixed: the resource that is short
#: decides.
FALSE_FIT: Final = "PreemptionOverBorrowingFalseFit"

#: Victims are chosen without regard to the quota of `pods`, so they may not free enough of it. Fixed: it counts.
PODS_IN_SEARCH: Final = "PodsInVictimSearch"

#: What victims free is available to all, and a gang of another queue may take it before their preemptor. Fixed: it is held
#: for the preemptor, against all but higher priorities in its own queue.
HOLD_QUOTA: Final = "HoldFreedQuota"

#: A victim that fits again at once is readmitted before its preemptor has started, only to be preempted again. Fixed: it
#: waits until the preemptor has started or no longer waits.
NO_READMIT: Final = "NoReadmitBeforePreemptor"

#: A workload that fits once the victims of a cycle are gone is admitted at once, though these still hold their quota: until
#: they have stopped, more is admitted than there is. Fixed: what they still hold is not granted.
STILL_HELD: Final = "QuotaOfVictimsStillHeld"

#: With a topology, the places of finished pods stay taken until their whole workload has ended, though their quota is given
#: back. Fixed: these places are free once all its other pods are known to be on theirs.
FREE_PLACES: Final = "PlacesOfFinishedPods"

FIXES: Final = frozenset({FALSE_FIT, PODS_IN_SEARCH, HOLD_QUOTA, NO_READMIT, STILL_HELD, FREE_PLACES})
