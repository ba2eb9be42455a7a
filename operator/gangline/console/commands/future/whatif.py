"""`gangline whatif`: when a job in a file would start, and what a change of a waiting job, a quota or a node would do. Changes
nothing.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from gangline import bounded
from gangline.console.options import Span
from gangline.console.output import presenting, terminal
from gangline.console.output.formats import OutputFormat, answer_option, document
from gangline.console.output.layout import Rows, wrapped
from gangline.console.views import access, completing, own_rights, what_if
from gangline.control.answers.workloads.words import age
from gangline.kube.resources import RESERVATIONS, Json

if TYPE_CHECKING:
    from gangline.jobs.base import JobKind


@click.command("whatif")
@click.argument("job", metavar="[JOB]", required=False, shell_complete=completing.jobs)
@click.option(
    "-f",
    "--filename",
    "file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Manifest of a Job, JobSet or GPUJob; - reads standard input.",
)
@click.option("--time", "duration", type=Span(), help="JOB would run for so long, such as 2h.")
@click.option("--gpus", type=click.IntRange(min=0), help="JOB would ask for so many GPUs; or the quota with --quota.")
@click.option("--queue", default="", shell_complete=completing.local_queues, help="JOB would wait in this LocalQueue.")
@click.option(
    "--quota",
    "cluster_queue",
    metavar="CLUSTERQUEUE",
    default="",
    shell_complete=completing.cluster_queues,
    help="The queue whose quota of --flavor would be --gpus.",
)
@click.option("--flavor", default="", help="The ResourceFlavor of --quota.")
@click.option(
    "--at",
    "--date",
    "at",
    default="",
    metavar="TIME",
    help="The job in FILE would be submitted then, or the quota change: 2026-01-31T20:00:00Z.",
)
@click.option(
    "--drain",
    metavar="NODE",
    default="",
    shell_complete=completing.nodes,
    help="The gangs on this node would move.",
)
@click.option(
    "--reservation",
    "reserved",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The Reservation in this file would be created.",
)
@access.cluster_options
@answer_option
def command(
    job: str | None,
    file: Path | None,
    duration: float | None,
    gpus: int | None,
    queue: str,
    cluster_queue: str,
    flavor: str,
    at: str,
    drain: str,
    reserved: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    output: OutputFormat,
) -> None:
    """Show when the job in FILE would start if submitted now, or at TIME (--at), and whether a smaller size, a shorter runtime
    or another queue would start it earlier.

    Or show what a change would do, who would start earlier and who later: of JOB, which waits (--time, --gpus, --queue), of a
    quota (--quota CLUSTERQUEUE --flavor NAME --gpus N, with --at from a time on), of a node (--drain NODE), or of
    a maintenance or other Reservation (--reservation FILE): whom it would stop, and what they would lose.
    """
    if sum((file is not None, bool(job), bool(cluster_queue), bool(drain), reserved is not None)) != 1:
        raise click.UsageError(
            "name a file (-f), a job, a quota (--quota), a node (--drain) or a Reservation (--reservation)"
        )
    if file is None:
        kind_name, _, name = (job or "").rpartition("/")
        of_job = {"kind": kind_name, "name": name, "durationSeconds": duration, "queue": queue}
        fields = {**of_job, "clusterQueue": cluster_queue, "flavor": flavor, "gpus": gpus, "at": at, "drain": drain}
        if reserved is not None:
            fields["reservation"] = _reservation(reserved)
        change = {name: value for name, value in fields.items() if value not in (None, "")}
        changed = access.run(_changed(kubeconfig, context, namespace, change))
        if reserved is not None:
            changed["command"] = f"kubectl apply -f {shlex.quote(str(reserved))}"
        if output.kind:
            terminal.say(document(output.kind, changed))
        else:
            terminal.say(*change_lines(changed, presenting.width()))
        return
    if duration is not None or gpus is not None or queue or flavor:
        raise click.UsageError("--time, --gpus, --queue and --flavor change what is there: name it instead of a file")
    job_of_file, kind = read(file)
    answer = access.run(_submitted(kubeconfig, context, namespace, job_of_file, kind, at))
    if output.kind:
        terminal.say(document(output.kind, _as_json(answer)))
        return
    _show(answer)


async def _submitted(
    kubeconfig: Path | None, context: str | None, namespace: str | None, job: Json, kind: JobKind, at: str
) -> Json:
    async with access.client(kubeconfig, context) as api:
        job["metadata"].setdefault("namespace", namespace or api.login.namespace)
        return await what_if.submitted(api, job, kind.resource, at)


async def _changed(kubeconfig: Path | None, context: str | None, namespace: str | None, change: Json) -> Json:
    async with access.client(kubeconfig, context) as api:
        try:
            return await what_if.asked(api, namespace or api.login.namespace, {"change": change})
        except own_rights.NoOperator as error:
            raise click.ClickException(f"only the operator can play a change: {error}") from error


def _reservation(file: Path) -> Json:
    """The spec of the one Reservation in a file. Raises click.ClickException."""
    from gangline.console.replaying import plan_files  # of all models of the API, which other changes do not need
    from gangline.replay.replayed import ReplayError

    try:
        found = plan_files.read([file], RESERVATIONS, "--reservation")
    except ReplayError as error:
        raise click.ClickException(str(error)) from error
    if len(found) != 1:
        raise click.ClickException(f"{file}: {len(found)} Reservations in it; exactly one is needed")
    (spec,) = found.values()
    return spec


def read(file: Path) -> tuple[Json, JobKind]:
    """The one job in a file of manifests. Raises click.ClickException."""
    from gangline.jobs import kind_of  # of all kinds, which a change of a waiting job does not need

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
    terminal.say(*what_if.answer_lines(answer, presenting.width()))


def change_lines(answer: Json, columns: int | None) -> list[str]:
    """What a change would do, as lines for a terminal of so many columns; None: for a pipe."""
    lines: list[str] = []
    if answer["before"] is not None or answer["after"] is not None:
        lines.append(
            f"The job would start {what_if.interval(answer['after'])} instead of {what_if.interval(answer['before'])}."
        )
    if answer["gpuHours"]:
        lines.append(
            f"The run would take {abs(answer['gpuHours']):g} GPU-hours {'more' if answer['gpuHours'] > 0 else 'less'}."
        )
    if answer["headDelaySeconds"]:
        lines.append(f"A reserved head would start up to {age(answer['headDelaySeconds'])} later.")
    if answer.get("gpuHoursLost") is not None:
        stopped = bounded.some([row["job"] for row in answer["stopped"]], 10) or "Nobody"
        lines.append(f"{stopped} would be stopped, and {answer['gpuHoursLost']:g} GPU-hours of work lost.")
    lines += [answer["note"]] if answer["note"] else []
    lines = [part for line in lines for part in wrapped(line, columns)]
    cells = tuple(
        (row["job"], f"{age(row['seconds'])} {word}")
        for word, rows in (("earlier", answer["gains"]), ("later", answer["loses"]))
        for row in rows
    )
    if cells:
        lines += ["", *presenting.styled(Rows(("JOB", "WOULD START"), cells), columns)]
    else:
        lines.append("No other job would start earlier or later.")
    return [*lines, "", f"This would apply it: {answer['command']}"] if answer["command"] else lines


def _as_json(answer: Json) -> dict[str, Any]:
    first = ("change", "startsInSeconds", "gainedHours", "runsForSeconds", "flavor", "because", "suggestions")
    later = ("submittedAt", "assumed") if answer["submittedAt"] is not None else ()
    return {name: answer[name] for name in (*first, *later)}
