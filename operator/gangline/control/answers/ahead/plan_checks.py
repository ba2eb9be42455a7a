"""Says before a Reservation or QuotaPlan is stored what keeps it from being honoured, and what could be instead.

The same functions compute its status afterwards. Whether the queues exist that it names is not said: who stores it looks for
them, and may have made them just now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from gangline import bounded
from gangline.api.quota_plans import quota_plan
from gangline.api.read import alternatives, expansion
from gangline.api.reservations import reservation
from gangline.api.spec_fields import SpecError
from gangline.api.unchecked import mapping
from gangline.control.answers.ahead import capacity
from gangline.control.answers.source import Source
from gangline.control.isolation.time_limit import TookTooLongError, limited
from gangline.control.queues import planned_quotas
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import Stored

#: sentences about what is not honoured in one answer, and about what could be instead
MOST: Final = 6
_LONGEST_NAME: Final = 253

#: what is not honoured, and what could be instead
_Sentences: TypeAlias = tuple[Sequence[str], Sequence[str]]


class WrongPlanError(ValueError):
    """Says, naming the field, why this can't be asked about."""


def check(source: Source, given: object) -> Json:
    """The sentences about an object, given its `kind`, `name` and `spec`. Raises WrongPlanError."""
    asked = mapping(given)
    kind, name, spec = asked.get("kind"), asked.get("name"), asked.get("spec")
    about = {kube.RESERVATIONS.kind: _reservation, kube.QUOTA_PLANS.kind: _quota_plan}.get(str(kind)[:_LONGEST_NAME])
    if about is None:
        raise WrongPlanError(f"spec.kind: must be Reservation or QuotaPlan, not {bounded.shown(kind)}")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
        raise WrongPlanError("spec.name: must be a name")
    try:
        sentences = limited(lambda: about(source, name, mapping(spec)))
    except SpecError as error:
        raise WrongPlanError(f"spec.{error}") from None
    except TookTooLongError as error:
        raise WrongPlanError(f"spec.spec: {error}") from None
    return {"warnings": alternatives.said(*map(_first, sentences))}


def _first(sentences: Sequence[str]) -> list[str]:
    more = [f"… and {len(sentences) - MOST} more"] if len(sentences) > MOST else []
    return [*sentences[:MOST], *more]


def _reservation(source: Source, name: str, spec: Json) -> _Sentences:
    owners = reservation({"spec": spec}).owners
    nodes, flavors, cluster_queues, local_queues, now = capacity.around(source)
    known = {*cluster_queues, *owners.cluster_queues}, {*local_queues, *owners.local_queues}
    others = source.mirror.objects[kube.RESERVATIONS].values()
    own = expansion.beside(name, spec, others, nodes, flavors, *known, now)
    return own.troubles, own.advice


def _quota_plan(source: Source, name: str, spec: Json) -> _Sentences:
    queue = quota_plan({"spec": spec}).cluster_queue
    plans = source.mirror.objects[kube.QUOTA_PLANS]
    others = [each for each in plans.values() if mapping(each.get("spec")).get("clusterQueue") == queue]
    own = Stored(alternatives.proposed(name, spec, plans.get(name)))
    beside = [own, *(each for each in others if each.name != name)]
    found = planned_quotas.expand(beside, capacity.quotas_of(source, (queue,)), source.now())
    planned = next(each for each in found if each.name == name)
    if planned.facts is not None or not planned.advice:  # other warnings name quotas and queues that do not exist
        return (), ()
    return planned.troubles, planned.advice
