"""`gangline whatif -f JOB.yaml`: when a job would start, and which changes would start it earlier. Submits nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import yaml

from gangline.console.output import presenting, terminal
from gangline.console.output.formats import OutputFormat, answer_option, document
from gangline.console.output.layout import Rows, wrapped
from gangline.console.views import access, asking, own_rights
from gangline.control.answers.api.discovery import ANSWERS
from gangline.control.answers.workloads.words import age, runtime_text
from gangline.jobs import kind_of
from gangline.jobs.base import JobKind
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, Invalid
from gangline.kube.resources import Json


@click.command("whatif")
@click.option(
    "-f",
    "--filename",
    "file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Manifest of a Job, JobSet or GPUJob; - reads standard input.",
)
@access.cluster_options
@answer_option
def command(
    file: Path, kubeconfig: Path | None, context: str | None, namespace: str | None, output: OutputFormat
) -> None:
    """Show when the job in FILE would start if submitted now, and whether a smaller size, a shorter runtime or another queue
    would start it earlier.
    """
    job, kind = read(file)
    answer = access.run(_submitted(kubeconfig, context, namespace, job, kind))
    if output.kind:
        terminal.say(document(output.kind, _as_json(answer)))
        return
    _show(answer)


async def _submitted(
    kubeconfig: Path | None, context: str | None, namespace: str | None, job: Json, kind: JobKind
) -> Json:
    async with access.client(kubeconfig, context) as api:
        where = job["metadata"].setdefault("namespace", namespace or api.login.namespace)
        job = await accepted(api, job, kind)
        body = {
            "apiVersion": f"{ANSWERS.name}/{ANSWERS.versions[-1]}",
            "kind": "WhatIf",
            "metadata": {},
            "spec": {"job": job},
        }
        try:
            return (await asking.create(api, f"/namespaces/{where}/whatifs", body))["status"]
        except own_rights.NoOperator as error:
            from gangline.console.views import own_answers

            return await own_answers.what_if(api, where, job, error)


async def accepted(api: ApiClient, job: Json, kind: JobKind) -> Json:
    """The job as the API server would store it, from a dry run; the job unchanged if the user may not create it.

    Raises click.ClickException with the API server's message if it would reject the job.
    """
    namespace, rehearsal = job["metadata"]["namespace"], {"dryRun": "All", "fieldValidation": "Strict"}
    try:
        return await api.create(kind.resource, namespace, job, query=rehearsal)
    except ApiError as error:
        if isinstance(error, Invalid) or "denied the request" in error.message:
            raise click.ClickException(f"the API server would reject the job: {error.message}") from error
        return job  # the user may not create jobs, or the job exists already


def read(file: Path) -> tuple[Json, JobKind]:
    """The one job in a file of manifests. Raises click.ClickException."""
    try:
        with click.open_file(str(file)) as stream:
            documents = [document for document in yaml.safe_load_all(stream) if isinstance(document, dict)]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise click.ClickException(f"{file}: {error}") from error
    jobs = [
        (document, kind)
        for document in documents
        if (kind := kind_of(str(document.get("apiVersion")), str(document.get("kind")))) is not None
    ]
    if len(jobs) != 1:
        found = f"{len(jobs)} jobs" if jobs else "no job"
        raise click.ClickException(f"{file}: {found} in it; exactly one Job, JobSet or GPUJob is needed")
    job, kind = jobs[0]
    if not isinstance(job.get("metadata"), dict) or not isinstance(job.get("spec"), dict):
        raise click.ClickException(f"{file}: metadata or spec is missing")
    return job, kind


# --- showing ------------------------------------------------------------------------------------------------------------


def _show(answer: Json) -> None:
    if answer["unexamined"]:
        terminal.say(f"({answer['unexamined']} changes were not tried: the time was not enough)", err=True)
    terminal.say(*answer_lines(answer, presenting.width()))


def answer_lines(answer: Json, columns: int | None) -> list[str]:
    """The answer as lines for a terminal of so many columns; None: for a pipe."""
    reason = f", {answer['because']}" if answer["because"] else ""
    obstacle = f": {answer['obstacle']}" if answer["obstacle"] else ""
    starts = answer["startsInSeconds"]
    start = f"no start within the horizon{obstacle}" if starts is None else f"it would start {_span(answer)}"
    source = f"{answer['forecast']['source']}, from {answer['forecast']['samples']} finished runs"
    lines = [
        f"Submitted now to queue {answer['queue']}, {start}{reason}",
        f"and run for {_runs(answer)} ({source}).",
        "",
    ]
    lines = [part for line in lines for part in wrapped(line, columns)]
    if not answer["suggestions"]:
        return [*lines, "No smaller size, shorter runtime or other queue would start it earlier."]
    cells = tuple(
        (str(rank), _span(each), _gained(each), _runs(each), each["change"])
        for rank, each in enumerate(answer["suggestions"], start=1)
    )
    return [*lines, *presenting.styled(Rows(("", "STARTS", "EARLIER BY", "RUNS FOR", "WHAT IF"), cells), columns)]


def _runs(answer: Json) -> str:
    runs = answer["runsForSeconds"]
    return runtime_text(runs["p50"], runs["p90"], answer["flavor"] or "")


def _span(answer: Json) -> str:
    starts = answer["startsInSeconds"]
    if starts is None:
        return "not within the horizon"
    p50, p90 = starts["p50"], starts["p90"]
    last = "?" if p90 is None else age(p90)
    return "at once" if p90 is not None and p90 < 1 else f"in {age(p50)} – {last}"


def _gained(answer: Json) -> str:
    return age(answer["gainedHours"] * 3600) if answer["gainedHours"] is not None else "all"


def _as_json(answer: Json) -> dict[str, Any]:
    first = ("change", "startsInSeconds", "gainedHours", "runsForSeconds", "flavor", "because", "suggestions")
    return {name: answer[name] for name in first}
