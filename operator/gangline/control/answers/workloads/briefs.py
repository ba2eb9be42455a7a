"""The few facts of a Workload that sorting and counting of all of them need, read once per version. So an answer reads in full
only what it shows.

A workload in an answer: JSON with stable field names, and the view that a client makes of it again.

Finds a workload by a job's name, by kind and name, or by the Workload's name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Final, TypeAlias

from gangline.api import quantity
from gangline.control.answers.workloads.snapshot import (
    FINISHED,
    HOLDING,
    JobState,
    WorkloadView,
    judge,
    requested,
    seconds,
)
from gangline.control.answers.workloads.snapshot import held as held_by
from gangline.control.answers.workloads.words import amount, why
from gangline.engine.model import accelerators
from gangline.kube.resources import PODS, Json, Resource
from gangline.objects import WorkloadObject

log = logging.getLogger(__name__)


@cache
def job_kinds() -> Mapping[str, Resource]:
    """The resource of each kind of jobs, by the kind's singular name."""
    from gangline.api import jobkinds  # thirty declarations, which an answer that is only shown does not need

    return {**{each.kind.lower(): each.resource for each in jobkinds.BUILT_IN}, "pod": PODS}


_SINGULAR: Final = {
    "jobs": "job",
    "gpujobs": "gpujob",
    "jobsets": "jobset",
    "pods": "pod",
    "podgroups": "podgroup",
    "workloads": "workload",
    "wl": "workload",
}


class WrongNameError(ValueError):
    """The name is of no known kind, or of several jobs; the text says which names to use."""


def find(views: Iterable[WorkloadView], namespace: str, kind: str, name: str) -> WorkloadView | None:
    """The newest matching workload of a namespace, or None. `kind` "" is any. Raises WrongNameError."""
    views = list(views)
    kind = singular(kind)
    if (
        kind
        and kind not in (*job_kinds(), "podgroup", "workload")
        and not any(v.job_kind.lower() == kind for v in views)
    ):
        raise WrongNameError(f"unknown kind {kind!r} of {name!r}: use {', '.join(job_kinds())}, podgroup or workload")
    found = [v for v in views if v.namespace == namespace and matches(v, kind, name)]
    kinds = sorted({v.job_kind for v in found})
    if len(kinds) > 1:
        raise WrongNameError(f"{name!r} is {' and '.join(f'a {k}' for k in kinds)}: use {kinds[0].lower()}/{name}")
    return max(found, key=lambda v: v.created, default=None)


def matches(view: WorkloadView, kind: str, name: str) -> bool:
    by_job = view.job_name == name and kind in ("", view.job_kind.lower())
    return by_job or (view.name == name and kind in ("", "workload"))


def singular(kind: str) -> str:
    kind = kind.lower().partition(".")[0]
    return _SINGULAR.get(kind, kind)


_FIELDS: Final = tuple(field.name for field in fields(WorkloadView))


def as_json(view: WorkloadView) -> dict[str, Any]:
    """The JSON of a workload. `position` counts from 0, as in Kueue's visibility API; times are seconds since the epoch."""
    fields: dict[str, Any] = {name: getattr(view, name) for name in _FIELDS} | {
        "state": str(view.state),
        "flavors": list(view.flavors),
        "warnings": list(view.warnings),
        "gpus": view.gpus,
        "never_fits": view.never_fits,
        "why": why(view) if view.state is not JobState.SUCCEEDED else "",
        "held": [{"flavor": f, "resource": r, "amount": amount(n, r)} for (f, r), n in view.held.items()],
        "amounts": {r: amount(n, r) for r, n in view.amounts.items()},
    }
    return {_NAMES[name]: value for name, value in fields.items()}


def of_json(item: Json) -> WorkloadView:
    """The view of an item. Raises KeyError, TypeError or ValueError for anything else."""
    known = {name: item[_NAMES[name]] for name in _FIELDS if _NAMES[name] in item}
    return WorkloadView(
        **known
        | {
            "state": JobState(item["state"]),
            "flavors": tuple(item["flavors"]),
            "warnings": tuple(item["warnings"]),
            "held": {(row["flavor"], row["resource"]): _amount(row["amount"], row["resource"]) for row in item["held"]},
            "amounts": {resource: _amount(text, resource) for resource, text in item["amounts"].items()},
        }
    )


def _amount(text: str, resource: str) -> int:
    return quantity.parse(text, resource)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


#: as the API writes them
_NAMES: Final = {name: _camel(name) for name in (*_FIELDS, "gpus", "never_fits", "why")}


Routes: TypeAlias = Mapping[tuple[str, str], str]
#: sort key of a Workload, as `snapshot.display_order`
Order: TypeAlias = tuple[int, str, int, float, str]
#: Workloads that are read, or looked up, before other tasks get their turn: about 2 ms
_READ: Final = 50
_LOOKED_UP: Final = 1000


@dataclass(frozen=True, slots=True)
class Brief:
    """One version of a Workload. `admitted_to`: the ClusterQueue whose quota it holds, "" = none."""

    raw: WorkloadObject
    state: JobState
    namespace: str
    queue: str
    admitted_to: str
    priority: int
    since: float
    created: float
    uid: str
    gpus: int

    def cluster_queue(self, routes: Routes) -> str:
        return self.admitted_to or routes.get((self.namespace, self.queue), "")

    def order(self, routes: Routes, position: int | None) -> Order:
        """The sort key, the same as `display_order` of the Workload's view."""
        queue = self.cluster_queue(routes)
        if self.state in HOLDING:
            return 0, queue, -self.priority, self.since, self.uid
        if self.state in FINISHED or self.state is JobState.INACTIVE:
            return 2, queue, 0, self.since, self.uid
        return 1, queue, position or 0, self.created, self.uid


class Briefs:
    """The briefs of all Workloads, by key. One that can't be read has none."""

    def __init__(self) -> None:
        self._known: dict[str, Brief] = {}

    async def of(self, workloads: Iterable[tuple[str, WorkloadObject]]) -> dict[str, Brief]:
        """The briefs of these Workloads."""
        found: dict[str, Brief] = {}
        read = looked = 0
        for key, raw in workloads:
            brief = self._known.get(key)
            if brief is None or brief.raw is not raw:
                brief = self._read(key, raw)
                if (read := read + 1) % _READ == 0:
                    await asyncio.sleep(0)
            elif (looked := looked + 1) % _LOOKED_UP == 0:
                await asyncio.sleep(0)
            if brief is not None:
                found[key] = brief
        return found

    def forget(self, present: Mapping[str, object]) -> None:
        """Drop what is gone, once that is more than what is there."""
        if len(self._known) > 2 * len(present) + _LOOKED_UP:
            self._known = {key: brief for key, brief in self._known.items() if key in present}

    def _read(self, key: str, raw: WorkloadObject) -> Brief | None:
        self._known.pop(key, None)
        try:
            brief = brief_of(raw)
        except Exception as error:  # one object's trouble must not cost the answers about all others
            log.warning("%s is left out of an answer: %r", key, error)
            return None
        self._known[key] = brief
        return brief


def brief_of(raw: WorkloadObject) -> Brief:
    state, _, _, since = judge(raw)
    held = held_by(raw)
    amounts: dict[str, int] = {}
    for (_, resource), used in held.items():
        amounts[resource] = amounts.get(resource, 0) + used
    return Brief(
        raw=raw,
        state=state,
        namespace=raw.namespace,
        queue=raw.queue_name,
        admitted_to=raw.admitted_by,
        priority=raw.priority,
        since=since,
        created=seconds(raw.created),
        uid=raw.uid,
        gpus=accelerators(amounts or requested(raw)),
    )
