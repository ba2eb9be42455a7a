"""Decides for each calibration group whether the runs that are alike forecast its latest runs better than the model.

Runs count that the model was not trained on: those held out of its training, then those that end while it is in use. Older ones
fade. A group has its own record, so a namespace with many runs decides nothing for others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gangline.forecast.quantiles import LEVELS
from gangline.tenants import SharedRoom

#: runs of a group after which the weight of one is halved
_HALF_LIFE: Final = 300.0
_FADED: Final = 0.5 ** (1.0 / _HALF_LIFE)
_MOST: Final = 1.0 / (1.0 - _FADED)
#: effective runs of a group below which the model is used
_FEW: Final = 20.0
#: groups that are remembered, of all namespaces together: users create LocalQueues
MOST_GROUPS: Final = 2_000
_ABOVE_MEDIAN: Final = LEVELS.index(0.5) + 1


@dataclass(slots=True)
class GroupLosses:
    """Mean pinball losses over the latest runs of a group: of the model, and of the runs that are alike."""

    runs: float = 0.0  #: the effective number
    model: float = 0.0
    alike: float = 0.0

    def add(self, model: float, alike: float) -> None:
        self.runs = self.runs * _FADED + 1.0
        self.model += (model - self.model) / self.runs
        self.alike += (alike - self.alike) / self.runs


class AlikeGroups:
    """The losses of both, by calibration group."""

    def __init__(self) -> None:
        self._losses: SharedRoom[str, GroupLosses] = SharedRoom(MOST_GROUPS)

    def __len__(self) -> int:
        """The number of groups for which the runs that are alike are better."""
        return sum(map(_better, self._losses.values()))

    def use(self, held_out: Mapping[str, GroupLosses]) -> None:
        """Groups of which no runs are known yet begin with the losses of a model's held-out runs."""
        for group, losses in held_out.items():
            namespace = _namespace_of(group)
            if self._losses.get(namespace, group) is None:
                self._losses.put(namespace, group, GroupLosses(min(losses.runs, _MOST), losses.model, losses.alike))

    def finished(self, group: str, target: float, model: Sequence[float], alike: Sequence[float]) -> None:
        """A run ended after exp(`target`) seconds; `model` and `alike`: its quantiles in log seconds. Without runs that are alike
        (NaN) it does not count.
        """
        if not math.isnan(alike[0]):
            losses = self._losses.use(_namespace_of(group), group, GroupLosses)
            losses.add(pinball(model, target), pinball(alike, target))

    def prefers_alike(self, group: str) -> bool:
        """Whether the runs that are alike are better for this group."""
        losses = self._losses.get(_namespace_of(group), group)
        return losses is not None and _better(losses)


def _better(losses: GroupLosses) -> bool:
    return losses.runs >= _FEW and losses.alike < losses.model


def _namespace_of(group: str) -> str:
    """The namespace of a calibration group; "" for runs of traces, which have none."""
    namespace, slash, queue = group.partition("/")
    return namespace if slash and "/" in queue else ""


def pinball(logs: Sequence[float], target: float) -> float:
    """The mean pinball loss of the quantiles of one run, in log seconds."""
    lost = 0.0
    for level, log in zip(LEVELS, logs, strict=True):
        lost += (target - log) * (level if target >= log else level - 1.0)
    return lost / len(LEVELS)


def from_alike(model: Sequence[float], alike: Sequence[float]) -> list[float]:
    """The quantiles of a group that prefers the runs that are alike: those up to the median are theirs. The upper ones, which
    decide whether backfill lets a job pass, lie halfway between both, since those of the runs that are alike cover too few.
    """
    upper = ((own + other) / 2 for own, other in zip(model[_ABOVE_MEDIAN:], alike[_ABOVE_MEDIAN:], strict=True))
    return [*alike[:_ABOVE_MEDIAN], *upper]
