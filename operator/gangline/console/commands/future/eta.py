"""`gangline eta`: expected start times of pending workloads, and the accuracy of earlier forecasts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from gangline.console.output import clock, presenting, terminal
from gangline.console.output.formats import DOCUMENTS, OutputFormat, dated, document
from gangline.console.output.layout import Rows, wrapped
from gangline.console.output.presenting import Presentation
from gangline.console.views import access, asking, completing, jobs, own_rights, reach
from gangline.control.answers.workloads.snapshot import JobState
from gangline.control.answers.workloads.words import age
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError
from gangline.kube.resources import Json


@click.command("eta")
@click.argument("job", metavar="[JOB]", required=False, shell_complete=completing.jobs)
@access.cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Workloads of all namespaces.")
@click.option(
    "--accuracy", is_flag=True, help="Show how accurate the operator's forecasts and expected starts have been."
)
@click.option(
    "--history", "with_history", is_flag=True, help="Show the starts that JOB was promised, each move and its cause."
)
@presenting.options("user", "state", "queue")
def command(
    job: str | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    accuracy: bool,
    with_history: bool,
    shape: Presentation,
) -> None:
    """Show when JOB, or every pending job, is expected to start: the p50 and the p90 of the start time.

    The operator simulates its own decisions, with forecasts of how long jobs run. With -s jobs in these states, not those
    that are pending.
    """
    if accuracy and (job is not None or with_history):
        raise click.UsageError("--accuracy is of all jobs: without JOB and --history")
    if job is not None and all_namespaces:
        raise click.UsageError("JOB is of one namespace: without -A")
    if accuracy:
        presenting.only_a_document(shape, "--accuracy")
        _show_accuracy(access.run(_accuracy(kubeconfig, context, namespace)), shape.format)
        return
    if with_history:
        if job is None:
            raise click.UsageError("--history is of one job: name it")
        presenting.only_a_document(shape, "--history")
        _show_promises(access.run(_promises(kubeconfig, context, namespace, job)), shape.format)
        return

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace

            async def look() -> list[jobs.ListedJob]:
                return jobs.by_start(
                    jobs.of_items(await _look(api, where, all_namespaces, job, shape.selection.states))
                )

            await presenting.present(jobs.STARTS if all_namespaces else jobs.OWN_STARTS, shape, look)

    access.run(work())


async def _look(api: ApiClient, where: str, everywhere: bool, job: str | None, states: Sequence[str]) -> list[Json]:
    """The item of JOB, or those of pending jobs. With `states`, those of jobs in any state: who prints them
    takes the right ones.
    """
    try:
        if job is not None:
            return [await asking.of_job(api, where, job, query={"times": True})]
        found = await _asked(api, where, everywhere)
    except own_rights.NoOperator as error:
        from gangline.console.views import own_answers

        if job is not None:
            return [await own_answers.job(api, where, job, error)]
        found = await own_answers.jobs(api, where, everywhere, None, False, error)
    return [item for item in found if states or item["state"] == JobState.PENDING]


async def _asked(api: ApiClient, namespace: str, everywhere: bool) -> list[Json]:
    return await asking.in_scope(
        lambda scope: asking.listed(api, f"{scope}/queuedjobs", {"times": True}), namespace, everywhere=everywhere
    )


# --- promises ---------------------------------------------------------------------------------------------------------


async def _promises(kubeconfig: Path | None, context: str | None, namespace: str | None, job: str) -> Json:
    async with access.client(kubeconfig, context) as api:
        try:
            return await asking.of_job(api, namespace or api.login.namespace, job, "promises")
        except own_rights.NoOperator as error:
            raise click.ClickException(f"promises are kept by the running operator: {error}") from error


def _show_promises(answer: Json, output: OutputFormat) -> None:
    if output.kind in DOCUMENTS:
        names = ("promises", "started", "record")
        body = {"job": answer["job"]["jobName"], **{name: answer[name] for name in names}}
        terminal.say(document(output.kind, dated(body, ("promises.at", "promises.p50", "promises.p90", "started"))))
        return
    if not answer["promises"]:
        terminal.say(
            "nothing was promised: it did not wait while expected starts were computed, or starts beyond their horizon",
            err=True,
        )
        return
    now = time.time()
    presenting.echo(promise_rows(answer["promises"], now))
    for line in outcome_lines(answer, now):
        terminal.say(*wrapped(line, presenting.width()))


def promise_rows(promises: Sequence[Json], now: float) -> Rows:
    """One row per promise, the first one first. Instants have their seconds, since promises may move by seconds."""
    cells = tuple(
        (
            f"{clock.exact(row['at'], now)} ({clock.distance(row['at'], now)})",
            clock.exact(row["p50"], now),
            clock.exact(row["p90"], now) or "?",
            row["cause"] or f"first promise: {row['because']}",
        )
        for row in promises
    )
    return Rows(("SAID", "P50", "P90", "CAUSE"), cells)


def outcome_lines(answer: Json, now: float) -> list[str]:
    """Lines about the start of a job: against its first promise, by its reservation, and the record of its queue."""
    lines: list[str] = []
    first, started = answer["promises"][0], answer["started"]
    if started is not None:
        off = started - first["p50"]
        side = "exactly at" if abs(off) < 1 else f"{age(abs(off))} {'after' if off > 0 else 'before'}"
        held = first["p90"] is not None and started <= first["p90"]
        kept = "before its p90: kept" if held else "after its p90: not kept"
        lines.append(
            f"started {clock.exact(started, now)} ({clock.distance(started, now)}): {side} the first p50, {kept}"
        )
    if (promised := answer.get("promisedBy")) is not None:
        lines.append(f"its reservation: promised to start by {clock.exact(promised, now)}")
    if answer["record"] is not None:
        lines.append(f"ClusterQueue {answer['job']['clusterQueue']}: {jobs.record_text(answer['record'])}")
    return lines


# --- accuracy -----------------------------------------------------------------------------------------------------------


async def _accuracy(kubeconfig: Path | None, context: str | None, namespace: str | None) -> Json:
    async with access.client(kubeconfig, context) as api:
        try:
            where = namespace or api.login.namespace
            return await asking.get(api, f"/namespaces/{where}/forecastaccuracies")
        except own_rights.NoOperator as error:
            answer = await reach.ask(api, "/accuracy")
            if answer is None:
                raise click.ClickException(f"accuracy is kept by the running operator: {error}") from error
            queues = await _queues_named(api, answer.get("queues") or {})
            return {**answer, "items": answer.get("runtimes") or [], "queues": queues}


async def _queues_named(api: ApiClient, records: Mapping[str, Any]) -> Json:
    """The operator's records by the names of ClusterQueues: it tells anybody, and so names none."""
    from gangline.control.forecasting.forecasting import alias

    if not records:
        return {}
    try:
        listed = (await api.list(kube.CLUSTER_QUEUES)).items
    except ApiError:  # a user who may not list them
        return {}
    named = ((queue["metadata"]["name"], records.get(alias(queue["metadata"]["uid"]))) for queue in listed)
    return {name: record for name, record in sorted(named) if record is not None}


def _show_accuracy(accuracy: Mapping[str, Any], output: OutputFormat) -> None:
    if output.kind in DOCUMENTS:
        body = {"since": accuracy.get("since"), "model": accuracy.get("model"), "runtimes": accuracy["items"]}
        body |= {name: accuracy.get(name) for name in ("starts", "queues")}
        terminal.say(document(output.kind, dated(body, ("since",))))
        return
    runtimes, starts = accuracy["items"], accuracy.get("starts") or {}
    terminal.say(accuracy.get("model", {}).get("reason", ""))
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
        terminal.say()
        presenting.echo(Rows(header, cells, (), frozenset(header[1:])))
    if starts.get("starts"):
        terminal.say(
            f"\n{starts['starts']} expected starts were checked: {starts['withinP50']:.0%} before the p50, "
            f"{starts['withinP90']:.0%} before the p90; median error {age(starts['medianErrorSeconds'])}"
        )
    for queue, record in (accuracy.get("queues") or {}).items():
        terminal.say(f"ClusterQueue {queue}: {jobs.record_text(record)}")
    if not runtimes and not starts.get("starts"):
        terminal.say("no forecast could be checked yet: no workload has finished since the operator started counting")
    elif accuracy.get("since"):
        terminal.say(f"\ncounted since {clock.when(accuracy['since'], time.time())}")
