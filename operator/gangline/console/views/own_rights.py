"""What can be known where no operator answers: made from what the user may read, and silent about the rest."""

from __future__ import annotations

from typing import TypeVar

import click

from gangline.console.output import remarks
from gangline.console.views import access, asking
from gangline.control.answers.workloads import items, lookup
from gangline.control.answers.workloads.snapshot import Snapshot, WorkloadView
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json

T = TypeVar("T")

#: why the operator's answer is missing
NoOperator = (asking.NotServedError, asking.NotAllowedError)


def say(error: Exception, seen: Snapshot | None = None) -> None:
    """Tell on stderr that the operator has not answered, and what the output lacks for that."""
    words = f"{error}: this is what you may read yourself"
    if seen is not None and not seen.complete:
        words += ", without positions and without other namespaces"
    remarks.remark(words)


async def look(api: ApiClient, namespace: str, error: Exception) -> Snapshot:
    """All that the user may read. Says so."""
    seen = await access.look(api, namespace)
    say(error, seen)
    return seen


def find(seen: Snapshot, namespace: str, job: str) -> WorkloadView | None:
    """The newest workload of a name, or None. Raises click.ClickException for a name that means nothing or several."""
    kind, _, name = job.rpartition("/")
    try:
        return lookup.find(seen.workloads, namespace, kind, name)
    except lookup.WrongNameError as error:
        raise click.ClickException(str(error)) from error


def rows(views: list[WorkloadView]) -> list[Json]:
    """Views as the items of an answer."""
    return [items.as_json(view) for view in views]
