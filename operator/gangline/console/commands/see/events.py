"""`gangline events`: what happened to jobs lately, and with --watch what happens."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from gangline.console.options import Span
from gangline.console.output import clock, layout, presenting, remarks, terminal
from gangline.console.output.columns import Column, Listing
from gangline.console.output.formats import dated, document
from gangline.console.output.presenting import Presentation
from gangline.console.views import access, asking, completing, watch
from gangline.control.answers.workloads.words import HAPPENINGS
from gangline.kube.client import ApiClient
from gangline.kube.errors import Expired, NotFound, Unavailable
from gangline.kube.resources import Json

_Column = Column[Json]
#: seconds before an operator that is away is asked again
PAUSE: Final = 5.0


@click.command("events")
@access.cluster_options
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="Events of all namespaces, others' reduced to size and time."
)
@click.option(
    "-q",
    "--cluster-queue",
    default=None,
    help="Events of this ClusterQueue, in all namespaces.",
    shell_complete=completing.cluster_queues,
)
@click.option("--since", type=Span(), default="1h", show_default=True, help="How far to look back, such as 10m or 12h.")
@presenting.options("user", "state", "queue")
def command(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    cluster_queue: str | None,
    since: float,
    shape: Presentation,
) -> None:
    """Show what happened to jobs: submitted, started, preempted, recovered, finished; with -w go on with what happens.

    The leading operator remembers the last 10,000 events. --state takes names of events, too.
    """

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = None if all_namespaces else namespace or api.login.namespace
            query: dict[str, str] = {"clusterQueue": cluster_queue or ""}
            found, after = await _lately(api, where, {**query, "sinceSeconds": str(max(1, round(since)))})
            listing = LISTING if where is None or cluster_queue else OWN_LISTING
            if not shape.watch:
                presenting.show(listing, shape, found)
                return
            lines = _Lines(listing, shape)
            lines.echo(found)
            await follow(api, where, query, after, lines.echo)

    access.run(work())


async def follow(
    api: ApiClient, namespace: str | None, query: dict[str, str], after: str, tell: Callable[[list[Json]], None]
) -> None:
    """Tell of the events after a version, for ever. An operator that is away is waited for; what was missed is said."""
    asked = {name: text for name, text in query.items() if text}
    away = ""
    while True:
        try:
            if not after:
                _, after = await _lately(api, namespace, {**query, "sinceSeconds": "1"})
            async for event in watch.events(api, namespace, after, asked):
                tell([event])
                after, away = event["metadata"]["resourceVersion"], ""
        except Expired:  # another operator leads, or more happened than is remembered
            remarks.remark("some events were missed: the operator does not remember them")
            after = ""
        except (Unavailable, NotFound, click.ClickException) as error:
            words = error.message
            if words != away:
                remarks.remark(words)
            away = words
            await asyncio.sleep(PAUSE)


async def _lately(api: ApiClient, namespace: str | None, query: dict[str, str]) -> tuple[list[Json], str]:
    """The events that are remembered, and the version after which others follow. Raises click.ClickException."""
    path = "/jobevents" if namespace is None else f"/namespaces/{namespace}/jobevents"
    asked: dict[str, str | bool | int] = {"limit": 1000, **query}
    found: list[Json] = []
    while True:
        try:
            page = await asking.get(api, path, asked)
        except (asking.NotServedError, asking.NotAllowedError) as error:
            raise click.ClickException(str(error)) from error
        found += page["items"]
        asked["continue"] = page["metadata"].get("continue") or ""
        if not asked["continue"]:
            return found, page["metadata"]["resourceVersion"]


class _Lines:
    """Prints events as they come: a table with one header, or one document each."""

    def __init__(self, listing: Listing[Json], shape: Presentation) -> None:
        self._listing = listing
        self._shape = shape
        self._headed = False

    def echo(self, events: list[Json]) -> None:
        listing, shape, now = self._listing, self._shape, time.time()
        chosen = shape.selection.of(listing, events, now)
        if not chosen:
            return
        if shape.format.tabular:
            lines = layout.plain(shape.format.rows(listing, chosen, now)).splitlines()
            terminal.say(*(lines if not self._headed else lines[1:]))
            self._headed = True
            return
        for event in chosen:
            body = dated(event, listing.instants)
            if shape.format.kind == "name":
                terminal.say(listing.name(event))
            elif shape.format.kind == "json":
                terminal.say(json.dumps(body))
            else:
                terminal.say(f"---\n{document(shape.format.kind, body)}")


def _job(event: Json) -> str:
    return event["jobName"] if event["hidden"] else f"{event['jobKind'].lower()}/{event['jobName']}"


_STYLES: Final = {"Running": "green", "Succeeded": "dim", "Failed": "red", "Stopping": "yellow", "Recovered": "yellow"}

LISTING: Final[Listing[Json]] = Listing(
    columns=(
        _Column("AT", lambda event, now: clock.wall(event["at"], now), key=lambda event, _: event["at"]),
        _Column("NAMESPACE", lambda event, _: event["namespace"], rank=2, least=10),
        _Column("JOB", lambda event, _: _job(event), least=20),
        _Column("QUEUE", lambda event, _: event["clusterQueue"] or event["queue"], rank=3, least=12),
        _Column(
            "GPUS", lambda event, _: str(event["gpus"] or "–"), right=True, rank=1, key=lambda event, _: event["gpus"]
        ),
        _Column("EVENT", lambda event, _: event["event"]),
        _Column("FLAVORS", lambda event, _: ",".join(event["flavors"]), wide=True),
        _Column("REASON", lambda event, _: event["reason"], wide=True),
        _Column("WHY", lambda event, _: event["text"] or event["reason"]),
    ),
    as_json=lambda event: event,
    instants=("at",),
    name=_job,
    empty="Nothing happened in that time, as far as the operator remembers.",
    style=lambda event: _STYLES.get(event["event"], ""),
    user=lambda event: (event["user"], event["namespace"]),
    state=lambda event: (event["event"],),
    queue=lambda event: (event["queue"], event["clusterQueue"]),
    states=HAPPENINGS,
)
#: of one namespace, whose people know their LocalQueues and no others
OWN_LISTING: Final = LISTING.with_text("QUEUE", lambda event, _: event["queue"] or event["clusterQueue"])
