"""Answers for when no operator answers: made from what the user may read, without what only an operator knows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import click

from gangline.api import names
from gangline.api.read import conditions
from gangline.console.output import remarks
from gangline.console.views import access, asking, denied
from gangline.control.answers.workloads import briefs
from gangline.control.answers.workloads.snapshot import AnswerSnapshot, WorkloadView
from gangline.kube.client import ApiClient, ApiError
from gangline.kube.resources import EVENTS, Json

if TYPE_CHECKING:
    from gangline.control.writes.events import Warned

T = TypeVar("T")

# the `reportingController` of what the operator records
OPERATOR: Final = f"{names.OWN_GROUP}/operator"
#: events that are looked at, and jobs without a Workload that are looked up
MOST_WARNINGS: Final = 1000
MOST_HELD: Final = 20


@dataclass(frozen=True, slots=True)
class OperatorWarning:
    """A Warning event of the operator and the object that it is about."""

    kind: str
    namespace: str
    name: str
    uid: str
    warned: Warned

    @property
    def at(self) -> float:
        return self.warned.at


#: why the operator's answer is missing
NoOperator = (asking.NotServedError, asking.NotAllowedError)


def refusal(error: Exception) -> click.ClickException:
    """The error of a command that shows nothing without the operator's answer: why there is none, and which right is missing."""
    return click.ClickException(denied.explained(str(error)))


def say(error: Exception, seen: AnswerSnapshot | None = None) -> None:
    """Tell on stderr that the operator has not answered, and what the output lacks for that."""
    words = f"{error}: this is what you may read yourself"
    if seen is not None and not seen.complete:
        words += ", without positions and without other namespaces"
    remarks.remark(words)


async def look(api: ApiClient, namespace: str, error: Exception) -> AnswerSnapshot:
    """A snapshot of all that the user may read, with a remark that says so."""
    seen = await access.look(api, namespace)
    say(error, seen)
    return seen


async def warned(api: ApiClient, namespace: str | None) -> list[OperatorWarning]:
    """The operator's Warning events about jobs and Workloads, the newest first; none where the user may not read them."""
    rows: list[OperatorWarning] = []
    try:
        async with aclosing(api.pages(EVENTS, namespace, field_selector="type=Warning")) as pages:
            async for page in pages:
                rows += [_warning(event) for event in page.items if event.get("reportingController") == OPERATOR]
                if len(rows) >= MOST_WARNINGS:
                    break
    except ApiError:
        return []
    return sorted(rows, key=lambda row: -row.at)


def _warning(event: Json) -> OperatorWarning:
    from gangline.control.writes.events import Warned  # much of the operator, needed only where none answers

    about: Json = event.get("regarding") or {}
    last = (event.get("series") or {}).get("lastObservedTime") or event.get("eventTime")
    return OperatorWarning(
        about.get("kind", ""),
        about.get("namespace", ""),
        about.get("name", ""),
        about.get("uid", ""),
        Warned(event.get("reason", ""), event.get("note", ""), conditions.millis_of(last) / 1000),
    )


def by_uid(rows: Iterable[OperatorWarning]) -> dict[str, list[Warned]]:
    found: dict[str, list[Warned]] = {}
    for row in rows:
        found.setdefault(row.uid, []).append(row.warned)
    return found


def with_warnings(views: Iterable[WorkloadView], rows: Iterable[OperatorWarning]) -> list[WorkloadView]:
    """The views with the operator's warnings about their jobs and Workloads."""
    from gangline.control.answers import circumstances  # as above

    known, now = by_uid(rows), time.time()
    return [circumstances.with_warnings(view, known, now) for view in views]


async def held(api: ApiClient, rows: Sequence[OperatorWarning], seen: AnswerSnapshot) -> list[WorkloadView]:
    """Jobs without a Workload that the operator warns of: it holds them, and cannot queue them as they are."""
    from gangline.control.answers.workloads import unqueued  # as above
    from gangline.objects import JobObject

    known = {uid for view in seen.workloads for uid in (view.uid, view.job_uid)}
    newest = {row.uid: row for row in reversed(rows) if row.uid not in known and row.kind.lower() in briefs.job_kinds()}
    found: list[WorkloadView] = []
    for row in sorted(newest.values(), key=lambda row: -row.at)[:MOST_HELD]:
        resource = briefs.job_kinds()[row.kind.lower()]
        try:
            job = JobObject(await api.get(resource, row.namespace, row.name))
        except ApiError:
            continue
        if job.uid == row.uid and job.queue_name:
            cause = unqueued.Cause(row.warned.reason, row.warned.note, managed=True)
            found.append(unqueued.view_of(resource, job, cause, {}))
    return found


def find(seen: AnswerSnapshot, namespace: str, job: str) -> WorkloadView | None:
    """The newest workload of a name, or None. Raises click.ClickException for a name that means nothing or several."""
    kind, _, name = job.rpartition("/")
    try:
        return briefs.find(seen.workloads, namespace, kind, name)
    except briefs.WrongNameError as error:
        raise click.ClickException(str(error)) from error


def rows(views: list[WorkloadView]) -> list[Json]:
    """Views as the items of an answer."""
    return [briefs.as_json(view) for view in views]
