"""`gangline limits set`: an administrator changes the quota of a ClusterQueue, or how much it may borrow and lend."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from gangline.console.output import terminal
from gangline.console.views import access, completing, targets
from gangline.kube.client import ApiClient
from gangline.kube.errors import Forbidden
from gangline.kube.resources import CLUSTER_QUEUES, Json

NONE: Final = "none"
_FIELDS: Final = {"nominal": "nominalQuota", "borrowing": "borrowingLimit", "lending": "lendingLimit"}


@click.command("set")
@click.argument("queue", metavar="CLUSTERQUEUE", shell_complete=completing.cluster_queues)
@access.cluster_options
@click.option("--flavor", required=True, help="The ResourceFlavor.")
@click.option("--resource", default="nvidia.com/gpu", show_default=True, help="The resource.")
@click.option("--nominal", default=None, metavar="QUANTITY", help="The quota that the queue owns.")
@click.option(
    "--borrowing",
    default=None,
    metavar="QUANTITY|none",
    help="How much the queue may borrow; none: all that others lend.",
)
@click.option(
    "--lending", default=None, metavar="QUANTITY|none", help="How much the queue may lend; none: all of its quota."
)
@click.option("--dry-run", is_flag=True, help="Only check whether the change could be made.")
def command(
    queue: str,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    flavor: str,
    resource: str,
    nominal: str | None,
    borrowing: str | None,
    lending: str | None,
    dry_run: bool,
) -> None:
    """Change the quota of CLUSTERQUEUE for one flavor and resource. What runs goes on."""
    given = {"nominal": nominal, "borrowing": borrowing, "lending": lending}
    wanted = {_FIELDS[name]: value for name, value in given.items() if value is not None}
    if not wanted:
        raise click.UsageError("say what to change: --nominal, --borrowing or --lending")
    if wanted.get("nominalQuota") == NONE:
        raise click.UsageError("--nominal: a queue without quota has 0")

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            terminal.say(await changed(api, queue, flavor, resource, wanted, dry_run=dry_run))

    access.run(work())


async def changed(
    api: ApiClient, queue: str, flavor: str, resource: str, wanted: dict[str, str], *, dry_run: bool = False
) -> str:
    """Change the limits of one resource of a ClusterQueue. Returns what was done, as a sentence. Raises click.ClickException for
    a flavor or resource that the queue does not have.
    """

    async def attempt() -> str:
        try:
            obj = await api.get(CLUSTER_QUEUES, None, queue)
        except Forbidden as error:
            raise click.ClickException(targets.not_allowed(CLUSTER_QUEUES, None, error)) from error
        groups, before = with_limits(obj, flavor, resource, wanted)
        await targets.patched(api, CLUSTER_QUEUES, obj, {"spec": {"resourceGroups": groups}}, dry_run=dry_run)
        told = ", ".join(f"{name} {before.get(name, NONE)} → {value}" for name, value in wanted.items())
        return f"ClusterQueue {queue}, {resource} of {flavor}: {told}" + (" (dry run)" if dry_run else "")

    return await targets.until_unchanged(attempt)


def with_limits(queue: Json, flavor: str, resource: str, wanted: dict[str, str]) -> tuple[list[Json], Json]:
    """The queue's resource groups with the wanted values, and the row as it was: the whole list, since it can't be merged."""
    groups: list[Json] = queue["spec"].get("resourceGroups") or []
    known = [(each["name"], row["name"]) for group in groups for each in group["flavors"] for row in each["resources"]]
    if (flavor, resource) not in known:
        has = ", ".join(f"{row} of {name}" for name, row in known) or "nothing"
        raise click.ClickException(
            f"ClusterQueue {queue['metadata']['name']} has no {resource} of {flavor} (it has: {has})"
        )
    before: Json = {}

    def changed_row(name: str, row: Json) -> Json:
        if (name, row["name"]) != (flavor, resource):
            return row
        before.update(row)
        merged = {**row, **wanted}
        return {key: value for key, value in merged.items() if value != NONE}

    return [
        {
            **group,
            "flavors": [
                {**each, "resources": [changed_row(each["name"], row) for row in each["resources"]]}
                for each in group["flavors"]
            ],
        }
        for group in groups
    ], before
