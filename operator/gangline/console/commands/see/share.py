"""`gangline share` and `gangline limits`: who has what of the quota, by queue and user, and what bounds each queue."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from gangline.api import quantity
from gangline.console.output import clock, presenting, terminal
from gangline.console.output.columns import Column, Listing
from gangline.console.output.presenting import Presentation
from gangline.console.views import access, asking, completing, denied, own_rights, quota_plans
from gangline.control.answers.workloads.words import age
from gangline.engine.model import is_accelerator
from gangline.kube.client import ApiClient
from gangline.kube.errors import Forbidden
from gangline.kube.resources import CLUSTER_QUEUES, Json

# --- limits set -------------------------------------------------------------------------------------------------------
#
# `gangline limits set`: an administrator changes the quota of a ClusterQueue, or how much it may borrow and lend.


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
    from gangline.console.views import targets

    async def attempt() -> str:
        try:
            obj = await targets.existing(api, CLUSTER_QUEUES, None, queue)
        except Forbidden as error:
            raise click.ClickException(denied.said(error)) from error
        groups, before = with_limits(obj, flavor, resource, wanted)
        await targets.patched(api, CLUSTER_QUEUES, obj, {"spec": {"resourceGroups": groups}}, dry_run=dry_run)
        changed = ", ".join(f"{name} {before.get(name, NONE)} → {value}" for name, value in wanted.items())
        return f"ClusterQueue {queue}, {resource} of {flavor}: {changed}" + (" (dry run)" if dry_run else "")

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


#: levels, each with the indentation of its rows
_LEVELS: Final = {"ClusterQueue": "", "LocalQueue": "  ", "User": "    "}


async def rows(api: ApiClient, namespace: str, everywhere: bool, cluster_queue: str) -> list[Json]:
    """The operator's answer: of the namespace's queues and those that share quota with them, or of all."""
    query: dict[str, str | bool | int] = {"clusterQueue": cluster_queue}
    try:
        return await asking.in_scope(
            lambda scope: asking.listed(api, f"{scope}/queueshares", query), namespace, everywhere=everywhere
        )
    except own_rights.NoOperator as error:
        raise own_rights.refusal(error) from error


@click.command("share")
@access.cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="All ClusterQueues.")
@click.option(
    "-q",
    "--cluster-queue",
    default="",
    help="Only this ClusterQueue and those that share quota with it.",
    shell_complete=completing.cluster_queues,
)
@presenting.options("user", "queue")
def share(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    cluster_queue: str,
    shape: Presentation,
) -> None:
    """Show quota and its use by ClusterQueue, LocalQueue and user, and who is next; like Slurm's sshare."""

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            everywhere = all_namespaces or bool(cluster_queue and namespace is None)
            await presenting.present(SHARES, shape, lambda: rows(api, where, everywhere, cluster_queue))

    access.run(work())


def _queues(row: Json) -> tuple[str, ...]:
    return tuple(name for name in (row["clusterQueue"], row["localQueue"]) if name)


def _users(row: Json) -> tuple[str, ...]:
    return (row["name"],) if row["level"] == "User" else tuple(name for name in (row["namespace"],) if name)


def _budget(row: Json) -> str:
    """The budget of which most is used."""
    found = row.get("budgets") or ()
    most = max(found, key=_used_share, default=None)
    return f"{100 * _used_share(most):.0f}% {most['name']}" if most is not None else ""


def _hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _used_share(budget: Json) -> float:
    return budget["usedGpuHours"] / budget["gpuHours"] if budget["gpuHours"] else 1.0


def budget_lines(found: Sequence[Json]) -> list[str]:
    """A line for each budget of these rows, those of which most is used first."""
    seen = {(each["name"], each["per"], each["owner"]): each for row in found for each in row.get("budgets") or ()}
    lines: list[str] = []
    for each in sorted(seen.values(), key=lambda each: (-_used_share(each), each["name"], each["owner"])):
        anew = "" if each["until"] is None else f", until {clock.rfc3339(each['until'])}"
        lines.append(
            f"budget {each['name']} of {each['whose']}: {_hours(each['usedGpuHours'])} of "
            f"{_hours(each['gpuHours'])} GPU-hours used ({100 * _used_share(each):.0f} %){anew}"
        )
    return lines


def _number(field: str) -> Column[Json]:
    header = {"nominalGpus": "NOMINAL", "usedGpus": "USED", "borrowedGpus": "BORROWED", "pendingGpus": "PENDING"}
    return Column(
        header[field],
        lambda row, _: "" if row[field] is None else str(row[field]),
        right=True,
        key=lambda row, _: row[field],
    )


def _fair(row: Json) -> str:
    """The number that orders turns: the share of a ClusterQueue, the decayed use of a LocalQueue."""
    if row["level"] == "ClusterQueue":
        return "" if row["share"] is None else f"{row['share']:.0f}‰"
    return "" if row["fairUsage"] is None else f"{row['fairUsage']:.4g}"


def _next_gpus(row: Json, now: float) -> str:
    """The GPUs that a ClusterQueue owns after the next change by its plan, and when that comes."""
    devices = [each for each in row["quotas"] if is_accelerator(each["resource"])]
    if not any(each.get("next") for each in devices):
        return ""
    after = sum(quantity.parse(each.get("next") or each["nominal"], each["resource"]) for each in devices)
    return f"{after} {clock.when(row['plan']['changesAt'], now)}"


def _remarks(found: Sequence[Json]) -> list[str]:
    """Lines that say how the numbers in column FAIR are made."""
    lines: list[str] = []
    if any(row["share"] for row in found):
        lines.append(
            "FAIR of a ClusterQueue: what it borrows of its dominant resource, per thousand of what its cohort"
        )
        lines.append("can lend, divided by its weight; the lowest is next")
    if any(row["fairUsage"] is not None for row in found):
        half = next((row["halfLifeSeconds"] for row in found if row["halfLifeSeconds"]), None)
        decay = f", half of it forgotten every {age(half)}" if half else ""
        lines.append(f"FAIR of a LocalQueue: what it has used so far{decay}, divided by its weight; the lowest is next")
    plans = [(row["name"], row.get("plan")) for row in found if row["level"] == "ClusterQueue"]
    return [*lines, *quota_plans.lines(plans, time.time())]


SHARES: Final[Listing[Json]] = Listing(
    columns=(
        Column("NAME", lambda row, _: _LEVELS[row["level"]] + row["name"], least=20, key=lambda row, _: row["name"]),
        Column("LEVEL", lambda row, _: row["level"], rank=4),
        Column("NAMESPACE", lambda row, _: row["namespace"], rank=3, least=10, sparse=True),
        Column("COHORT", lambda row, _: "/".join(reversed(row["cohorts"])), rank=4, least=10, sparse=True),
        _number("nominalGpus"),
        Column("NEXT", _next_gpus, rank=1, least=8, sparse=True),
        _number("usedGpus"),
        _number("borrowedGpus"),
        _number("pendingGpus"),
        Column("RUN", lambda row, _: str(row["running"]), right=True, rank=1, key=lambda row, _: row["running"]),
        Column("WAIT", lambda row, _: str(row["waiting"]), right=True, rank=1, key=lambda row, _: row["waiting"]),
        Column("WEIGHT", lambda row, _: row["weight"], right=True, rank=2),
        Column("RANK", lambda row, _: "" if row["rank"] is None else str(row["rank"]), right=True, sparse=True),
        Column(
            "COUNTED",
            lambda row, now: clock.when(row["consumedAt"], now),
            wide=True,
            key=lambda row, _: row["consumedAt"],
        ),
        Column(
            "BUDGET",
            lambda row, _: _budget(row),
            rank=2,
            sparse=True,
            key=lambda row, _: max(map(_used_share, row.get("budgets") or ()), default=0.0),
        ),
        Column("NOTE", lambda row, _: row["note"], rank=1, sparse=True),
        Column(
            "FAIR", lambda row, _: _fair(row), key=lambda row, _: row["share"] if row["share"] else row["fairUsage"]
        ),
    ),
    as_json=lambda row: row,
    instants=("consumedAt", "plan.changesAt"),
    name=lambda row: f"{row['level'].lower()}/{row['name']}",
    empty="No LocalQueue of this namespace leads to a ClusterQueue (-A: all).",
    style=lambda row: {"ClusterQueue": "bold", "User": "dim"}.get(row["level"], ""),
    user=_users,
    queue=_queues,
    remarks=_remarks,
)


# --- limits -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """One flavor and resource of a ClusterQueue."""

    queue: str
    cohorts: tuple[str, ...]
    row: Json
    budgets: tuple[Json, ...] = ()
    plan: Json | None = None

    def as_json(self) -> Json:
        said = {"clusterQueue": self.queue, "cohorts": list(self.cohorts), **self.row}
        return {**said, "budgets": list(self.budgets), "plan": self.plan}


def quotas(found: Sequence[Json]) -> list[QuotaRow]:
    budgets: dict[str, tuple[Json, ...]] = {}
    for row in found:
        budgets[row["clusterQueue"]] = (*budgets.get(row["clusterQueue"], ()), *(row.get("budgets") or ()))
    return [
        QuotaRow(row["name"], tuple(row["cohorts"]), each, budgets.get(row["clusterQueue"], ()), row.get("plan"))
        for row in found
        if row["level"] == "ClusterQueue"
        for each in row["quotas"]
    ]


def _limit(quota: QuotaRow, field: str) -> str:
    if not quota.cohorts:
        return "–"
    return "no limit" if quota.row[field] is None else str(quota.row[field])


def _next(quota: QuotaRow, now: float) -> str:
    """The nominal quota after the next change by a plan, and when that comes."""
    after = quota.row.get("next")
    return f"{after} {clock.when(quota.plan['changesAt'], now)}" if after is not None and quota.plan else ""


LIMITS: Final[Listing[QuotaRow]] = Listing(
    columns=(
        Column("QUEUE", lambda quota, _: quota.queue, least=12),
        Column("COHORT", lambda quota, _: "/".join(reversed(quota.cohorts)), rank=3, least=10, sparse=True),
        Column("FLAVOR", lambda quota, _: quota.row["flavor"], least=12),
        Column("RESOURCE", lambda quota, _: quota.row["resource"], least=14),
        Column("NOMINAL", lambda quota, _: quota.row["nominal"], right=True),
        Column("WRITTEN", lambda quota, _: quota.row.get("written", ""), right=True, rank=2, sparse=True),
        Column("NEXT", _next, rank=1, least=8, sparse=True),
        Column("USED", lambda quota, _: quota.row["used"], right=True),
        Column("BORROWED", lambda quota, _: quota.row["borrowed"], right=True, rank=1),
        Column("MAY BORROW", lambda quota, _: _limit(quota, "borrowingLimit"), right=True),
        Column("MAY LEND", lambda quota, _: _limit(quota, "lendingLimit"), right=True),
    ),
    as_json=QuotaRow.as_json,
    instants=("plan.changesAt",),
    name=lambda quota: f"clusterqueue/{quota.queue}",
    empty="No LocalQueue of this namespace leads to a ClusterQueue (-A: all).",
    queue=lambda quota: (quota.queue,),
    remarks=lambda found: [
        *quota_plans.lines([(quota.queue, quota.plan) for quota in found], time.time()),
        *budget_lines([{"budgets": quota.budgets} for quota in found]),
    ],
)


@click.group("limits", invoke_without_command=True)
@access.cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="All ClusterQueues.")
@click.option(
    "-q",
    "--cluster-queue",
    default="",
    help="Only this ClusterQueue and those that share quota with it.",
    shell_complete=completing.cluster_queues,
)
@presenting.options("queue")
@click.pass_context
def limits(
    ctx: click.Context,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    cluster_queue: str,
    shape: Presentation,
) -> None:
    """Show what bounds each queue, by flavor and resource: quota, and how much it may borrow and lend; and budgets.

    `gangline limits set` changes it.
    """
    if ctx.invoked_subcommand is not None:
        for param in ctx.command.params:
            if ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE:
                raise click.UsageError(
                    f"{param.opts[-1]} has no effect before `{ctx.invoked_subcommand}`: write it behind"
                )
        return

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            everywhere = all_namespaces or bool(cluster_queue and namespace is None)

            async def look() -> list[QuotaRow]:
                return quotas(await rows(api, where, everywhere, cluster_queue))

            await presenting.present(LIMITS, shape, look)

    access.run(work())


limits.add_command(command)
