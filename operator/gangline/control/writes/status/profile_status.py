"""The status of JobProfiles: whether placement policies look at one, and whether more is expected than was measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gangline import bounded
from gangline.api import names
from gangline.api.read import conditions
from gangline.kube.resources import Json
from gangline.objects import Stored

#: verdicts that a condition lists
_MOST_VERDICTS: Final = 4


def status(profile: Stored, trouble: str, verdicts: Sequence[str], *, used: bool, now: int) -> Json:
    """The JobProfile's status. `trouble`: why it does not count, "" = it counts. `verdicts` on what is expected of pairs that
    nobody measured, by model of card; `used`: on some model it is used.
    """
    rows = [dict(row) for row in profile.conditions]
    generation = profile.generation
    if trouble:
        conditions.put(rows, names.ACTIVE, False, "NotRead", trouble, now=now, generation=generation)
    else:
        message = "Placement policies with interference look at it"
        conditions.put(rows, names.ACTIVE, True, "Ready", message, now=now, generation=generation)
    said = bounded.some(verdicts, _MOST_VERDICTS) or "No pairs of several families were measured"
    if used:
        conditions.put(rows, names.PRIOR_USED, True, "BetterThanConstant", said, now=now, generation=generation)
    else:
        conditions.put(rows, names.PRIOR_USED, False, "NotBetter", said, now=now, generation=generation)
    return {**profile.status, "conditions": rows, "observedGeneration": generation}
