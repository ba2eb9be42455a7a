"""Jobs that a command is to change, by name or by user, state and queue; what was chosen in bulk is asked about first."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from gangline.console.output import terminal
from gangline.console.output.selection import ListSelection, words
from gangline.console.views import jobs
from gangline.control.answers.workloads.snapshot import FINISHED, State, snapshot
from gangline.kube.client import ApiClient
from gangline.kube.resources import LOCAL_QUEUES, WORKLOADS
from gangline.objects import LocalQueueObject, WorkloadObject

#: names in a question
_NAMED = 3


@dataclass(frozen=True, slots=True)
class JobChoice:
    """The jobs that the user has chosen. `names`: as they were given. `selection`: of which jobs, where none was named."""

    names: tuple[str, ...] = ()
    selection: ListSelection = field(default_factory=ListSelection)
    #: do not ask
    yes: bool = False

    @property
    def by_filters(self) -> bool:
        return bool(self.selection.users or self.selection.states or self.selection.queues)

    async def found(
        self, api: ApiClient, namespace: str, verb: str, *, dry_run: bool, among: Collection[State] | None = None
    ) -> Sequence[str]:
        """The names, or the jobs that the filters leave, of those in the states `among` (None: all that have not ended).

        Asks before many are changed. Raises click.ClickException where none is left, click.Abort for a no.
        """
        if not self.by_filters:
            return self.names
        found = await matching(api, namespace, self.selection, among)
        if not found:
            states = f" that {'are' if len(among) > 1 else 'is'} {' or '.join(map(str.lower, among))}" if among else ""
            raise click.ClickException(f"no job in namespace {namespace}{states} is left by these filters")
        if not (self.yes or dry_run):
            jobs = "job" if len(found) == 1 else "jobs"
            terminal.confirm(f"{verb} {len(found)} {jobs} of namespace {namespace} ({_some(found)})?", abort=True)
        return found


def options(metavar: str, completion: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add names, `-u`, `-s`, `--queue` and `-y`; the command gets them as `choice`. Names and filters exclude each other."""
    found = [
        click.argument("names", metavar=metavar, nargs=-1, shell_complete=completion),
        click.option("-u", "--user", "users", multiple=True, help="All jobs of these users (label gangline.io/user)."),
        click.option("-s", "--state", "states", multiple=True, help="All jobs in these states, such as pending."),
        click.option("--queue", "queues", multiple=True, help="All jobs of these LocalQueues or ClusterQueues."),
        click.option("-y", "--yes", is_flag=True, help="Do not ask, where jobs are chosen by user, state or queue."),
    ]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def gathered(**given: Any) -> Any:
            wanted = {name: words(given.pop(name)) for name in ("users", "states", "queues")}
            choice = JobChoice(given.pop("names"), ListSelection(**wanted), given.pop("yes"))
            if choice.by_filters == bool(choice.names):
                raise click.UsageError("name jobs, or choose them by --user, --state or --queue")
            return command(choice=choice, **given)

        for option in reversed(found):
            gathered = option(gathered)
        return gathered

    return decorate


async def matching(
    api: ApiClient, namespace: str, selection: ListSelection, among: Collection[State] | None = None
) -> list[str]:
    """Jobs of the namespace that have not ended, as `kind/name`."""
    workloads = (await api.list(WORKLOADS, namespace)).items
    local_queues = (await api.list(LOCAL_QUEUES, namespace)).items
    seen = snapshot(map(WorkloadObject, workloads), [], map(LocalQueueObject, local_queues), complete=False)
    live = [
        jobs.ListedJob(view)
        for view in seen.workloads
        if view.state not in FINISHED and (among is None or view.state in among)
    ]
    return list(dict.fromkeys(job.view.job for job in selection.of(jobs.LISTING, live, 0.0)))


def _some(found: Sequence[str]) -> str:
    return ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
