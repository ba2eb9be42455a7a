"""`gangline eta`: expected start times of pending workloads, and the accuracy of earlier forecasts."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from gangline.console.views import access, asking, own_rights, reach, table, times
from gangline.console.views.table import Rows
from gangline.control.answers.snapshot import State
from gangline.control.answers.words import age
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json


@click.command("eta")
@click.argument("job", metavar="[JOB]", required=False)
@access.cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Workloads of all namespaces.")
@click.option(
    "--accuracy", is_flag=True, help="Show how accurate the operator's forecasts and expected starts have been."
)
@click.option("-o", "--output", type=click.Choice(["json"]), default=None)
def command(
    job: str | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    accuracy: bool,
    output: str | None,
) -> None:
    """Show when JOB, or every pending job, is expected to start: the p50 and the p90 of the start time.

    The operator simulates its own decisions, with forecasts of how long jobs run.
    """
    if accuracy:
        _show_accuracy(access.run(_accuracy(kubeconfig, context, namespace)), output)
        return
    shown = access.run(_look(kubeconfig, context, namespace, all_namespaces, job))
    if output == "json":
        click.echo(json.dumps([times.as_json(item) for item in shown], indent=2))
        return
    if not shown:
        click.echo("No job is pending.", err=True)
        return
    table.echo(rows(shown, time.time()))


async def _look(
    kubeconfig: Path | None, context: str | None, namespace: str | None, everywhere: bool, job: str | None
) -> list[Json]:
    async with access.client(kubeconfig, context) as api:
        where = namespace or api.login.namespace
        try:
            if job is not None:
                path, query = asking.job_path(where, job)
                return [await asking.get(api, path, {**query, "times": True})]
            found = await _asked(api, where, everywhere)
        except own_rights.NoOperator as error:
            from gangline.console.views import own_answers

            if job is not None:
                return [await own_answers.job(api, where, job, error)]
            found = await own_answers.jobs(api, where, everywhere, None, False, error)
    return [item for item in found if item["state"] == State.PENDING]


async def _asked(api: ApiClient, namespace: str, everywhere: bool) -> list[Json]:
    if everywhere:
        try:
            return await asking.listed(api, "/queuedjobs", {"times": True})
        except asking.NotAllowedError:
            click.echo(f"(you may not ask about all namespaces: this is namespace {namespace})", err=True)
    return await asking.listed(api, f"/namespaces/{namespace}/queuedjobs", {"times": True})


# --- showing ------------------------------------------------------------------------------------------------------------


def rows(shown: Sequence[Json], now: float) -> Rows:
    """One row per job, in the order of their expected starts."""
    header = ("NAMESPACE", "NAME", "QUEUE", "GPUS", "WAITED", "STARTS IN", "AT", "RUNS FOR", "BECAUSE")
    cells: list[tuple[str, ...]] = []
    for item in sorted(shown, key=lambda each: (times.start_of(each)[0] or float("inf"), each["created"])):
        cells.append(
            (
                item["namespace"],
                item["jobName"],
                item["clusterQueue"] or f"{item['queue']}?",
                str(item["gpus"]) if item["gpus"] else "–",
                age(now - item["created"]),
                times.start_text(item, now),
                _clock(item, now),
                times.runtime_text(item),
                _why(item),
            )
        )
    return Rows(header, tuple(cells), (), frozenset({"GPUS", "WAITED"}))


def _clock(item: Json, now: float) -> str:
    start, _ = times.start_of(item)
    if start is None:
        return ""
    at = time.localtime(start)
    return time.strftime("%H:%M" if start - now < 86400 else "%a %H:%M" if start - now < 6e5 else "%F", at)


def _why(item: Json) -> str:
    if item["state"] != State.PENDING:
        return f"the job is {item['state'].lower()}"
    if times.start_of(item)[0] is None:
        return item["why"] or "no start within the horizon"
    return item["because"]


# --- accuracy -----------------------------------------------------------------------------------------------------------


async def _accuracy(kubeconfig: Path | None, context: str | None, namespace: str | None) -> Json:
    async with access.client(kubeconfig, context) as api:
        try:
            where = namespace or api.login.namespace
            return await asking.get(api, f"/namespaces/{where}/forecastaccuracies")
        except own_rights.NoOperator as error:
            told = await reach.ask(api, "/accuracy")
            if told is None:
                raise click.ClickException(f"accuracy is kept by the running operator: {error}") from error
            return {**told, "items": told.get("runtimes") or []}


def _show_accuracy(accuracy: Mapping[str, Any], output: str | None) -> None:
    if output == "json":
        told = {"since": accuracy.get("since"), "model": accuracy.get("model"), "runtimes": accuracy["items"]}
        click.echo(json.dumps({**told, "starts": accuracy.get("starts")}, indent=2))
        return
    runtimes, starts = accuracy["items"], accuracy.get("starts") or {}
    click.echo(accuracy.get("model", {}).get("reason", ""))
    if runtimes:
        header = ("RUNTIME FORECAST BY", "RUNS", "WITHIN P50", "WITHIN P90", "TYPICAL FACTOR")
        cells = tuple(
            (
                row["source"],
                str(row["runs"]),
                f"{row['within']['0.5']:.0%}",
                f"{row['within']['0.9']:.0%}",
                f"{row['factor']:.2f}×",
            )
            for row in runtimes
        )
        click.echo(f"\n{table.plain(Rows(header, cells, (), frozenset(header[1:])))}")
    if starts.get("starts"):
        click.echo(
            f"\n{starts['starts']} expected starts were checked: {starts['withinP50']:.0%} before the p50, "
            f"{starts['withinP90']:.0%} before the p90; median error {age(starts['medianErrorSeconds'])}"
        )
    if not runtimes and not starts.get("starts"):
        click.echo("no forecast could be checked yet: no workload has finished since the operator started counting")
    elif accuracy.get("since"):
        click.echo(f"\ncounted since {time.strftime('%Y-%m-%d %H:%M', time.localtime(accuracy['since']))}")
