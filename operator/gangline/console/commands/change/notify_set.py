"""`gangline notify set`: chooses the events about which a job's users get messages, and the address."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from gangline.api import names
from gangline.console.output import terminal
from gangline.console.output.selection import words
from gangline.console.views import access, completing, targets
from gangline.control.answers.workloads.snapshot import FINISHED
from gangline.control.writes.notify.notices import KINDS, is_address
from gangline.kube.client import ApiClient
from gangline.kube.resources import DEPLOYMENTS, PODS, WORKLOADS, Json, Resource

ALL: Final = "all"
NONE: Final = "none"
_BY_FOLDED: Final = {kind.lower(): kind for kind in KINDS}


@click.command("set")
@click.argument("job", metavar="JOB", shell_complete=completing.jobs)
@access.cluster_options
@click.option(
    "--events",
    multiple=True,
    metavar="KIND,…|all|none",
    help=f"The kinds of messages to send, of those that the queue's policy sends. Kinds: {', '.join(KINDS)}.",
)
@click.option(
    "--to",
    default=None,
    metavar="ADDRESS|none",
    help="The address of this job, which replaces {to} in the policy's URLs; none: the job has no address.",
)
@click.option("--dry-run", is_flag=True, help="Only check whether the change could be made.")
def command(
    job: str,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    events: tuple[str, ...],
    to: str | None,
    dry_run: bool,
) -> None:
    """Choose which messages about JOB are sent, and their receiver.

    The command sets the job's annotations gangline.io/notify and gangline.io/notify-to.

    The QueuePolicy of the job's queue sends them (spec.notify). Without a policy no messages are sent.
    """
    if not events and to is None:
        raise click.UsageError("say what to set: --events or --to")
    wanted: dict[str, str | None] = {}
    if events:
        wanted[names.NOTIFY] = kinds(words(events))
    if to is not None:
        if to != NONE and not is_address(to):
            raise click.BadParameter("must be an address, a channel or a number, without spaces", param_hint="--to")
        wanted[names.NOTIFY_TO] = None if to == NONE else to

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            message = await notifying(api, namespace or api.login.namespace, job, wanted, dry_run=dry_run)
            terminal.say(message + (" (dry run: nothing is changed)" if dry_run else ""))

    access.run(work())


def kinds(given: Sequence[str]) -> str | None:
    """The annotation's value; None: no annotation, which means all kinds. Raises click.BadParameter."""
    folded = [name.lower() for name in given]
    if alone := next((name for name in folded if name in (ALL, NONE)), ""):
        if len(folded) > 1:
            raise click.BadParameter(f"{alone} stands alone", param_hint="--events")
        return NONE if alone == NONE else None
    if unknown := next((name for name in given if name.lower() not in _BY_FOLDED), ""):
        raise click.BadParameter(f"{unknown!r} is none of {', '.join(KINDS)}, {ALL}, {NONE}", param_hint="--events")
    return ", ".join(dict.fromkeys(_BY_FOLDED[name] for name in folded))


async def notifying(
    api: ApiClient, namespace: str, name: str, wanted: dict[str, str | None], *, dry_run: bool = False
) -> str:
    """Set the annotations that choose a job's notifications. Returns what holds now, as a sentence."""

    async def attempt() -> str:
        target = await targets.find(api, namespace, name)
        if target.state in FINISHED:
            raise click.ClickException(f"{target.title} has ended: no more messages about it are sent")
        resource, obj = _carrier(target)
        before: Json = obj["metadata"].get("annotations") or {}
        now = _sentence(target.title, {**before, **wanted})
        if all(before.get(key) == value for key, value in wanted.items()):
            return f"{now}, as before"
        await targets.patched(api, resource, obj, {"metadata": {"annotations": wanted}}, dry_run=dry_run)
        return now

    return await targets.until_unchanged(attempt)


def _carrier(target: targets.Target) -> tuple[Resource, Json]:
    """The object whose annotations count: the job, or the Workload of pods, which has copied theirs."""
    if target.resource == DEPLOYMENTS:
        raise click.ClickException(
            f"{target.title}: its pods are queued one by one: write the annotations in its spec.template"
        )
    if target.job is not None and target.resource is not None and target.resource != PODS:
        return target.resource, target.job
    if target.workload is None:
        raise click.ClickException(
            f"{target.title} has no Workload: it is in no queue, and no messages about it are sent"
        )
    return WORKLOADS, target.workload


def _sentence(title: str, annotations: Json) -> str:
    chosen, to = annotations.get(names.NOTIFY), annotations.get(names.NOTIFY_TO)
    if chosen == NONE:
        return f"{title}: no messages are sent"
    what = f"messages about {chosen} are sent" if chosen else "all messages that the policy of its queue sends are sent"
    return f"{title}: {what}" + (f" to {to}" if to else "")
