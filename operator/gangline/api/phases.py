"""How the phases of trainings follow from their metrics, as a QueuePolicy says. Pure functions on JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gangline.api import quantity
from gangline.api.spec_fields import SpecError, a_length
from gangline.engine.model import Millis
from gangline.kube.resources import Json

#: the phases, which are reasons of a Workload's condition `names.CONVERGED`
PROGRESSING: Final = "Progressing"
WATCHING: Final = "Watching"
CONVERGED: Final = "Converged"

#: the windows in which metrics are gathered
SHORTEST_WINDOW: Final[Millis] = 30_000
LONGEST_WINDOW: Final[Millis] = 3_600_000


@dataclass(frozen=True, slots=True)
class PhasePolicy:
    """QueuePolicy.spec.phases. `watching` and `converged` are parts of the first growth."""

    window: Millis = 60_000
    watching: float = 0.1
    converged: float = 0.01


def phase_policy(section: Json) -> PhasePolicy:
    """The policy of `spec.phases`. Raises SpecError, which names the field."""
    path, usual = "spec.phases", PhasePolicy()
    window = section.get("window")
    length = usual.window if window is None else a_length(window, f"{path}.window", LONGEST_WINDOW)
    if length < SHORTEST_WINDOW:
        raise SpecError(f"{path}.window", "must be at least 30s")
    watching, converged = (
        _part(section.get(name), f"{path}.{name}", getattr(usual, name)) for name in ("watching", "converged")
    )
    if not 0 < converged < watching:
        raise SpecError(f"{path}.converged", "must be greater than 0 and less than watching")
    return PhasePolicy(length, watching, converged)


def _part(value: object, path: str, usual: float) -> float:
    if value is None:
        return usual
    try:
        return quantity.parse_number(value if isinstance(value, int | str) else "")
    except quantity.QuantityError as error:
        raise SpecError(path, str(error)) from None
