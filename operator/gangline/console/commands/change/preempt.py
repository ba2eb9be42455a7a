"""`gangline preempt --dry-run JOB`: whom a waiting job would preempt, and what they would lose."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click

from gangline.console.output import presenting, remarks, terminal
from gangline.console.output.columns import Column, Listing
from gangline.console.output.formats import DOCUMENTS, document
from gangline.console.output.presenting import Presentation
from gangline.console.views import access, asking, completing, own_rights
from gangline.control.answers.workloads.words import age, counted
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json


@click.command("preempt")
@click.argument("job", metavar="JOB", shell_complete=completing.jobs)
@access.cluster_options
@click.option(
    "--dry-run",
    is_flag=True,
    help="Say whom the job would preempt. The option is required, since only the policy preempts.",
)
@presenting.options("user", "queue")
def command(
    job: str, kubeconfig: Path | None, context: str | None, namespace: str | None, dry_run: bool, shape: Presentation
) -> None:
    """Show whom JOB would preempt if it were next in its queue, by the policy of its queue, and the work that would be lost.

    Nothing is preempted. The operator plays one round of its own decisions, without others that wait.
    """
    if not dry_run:
        raise click.UsageError(
            "say --dry-run: nobody preempts by hand. A higher priority class (`gangline top`) or the queue's policy does it"
        )

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            if not shape.watch:
                show(await _asked(api, where, job), shape)
                return

            async def look() -> list[Json]:
                answer = await _asked(api, where, job)
                remarks.remark(summary(answer))
                return answer["victims"]

            await presenting.present(VICTIMS, shape, look)

    access.run(work())


async def _asked(api: ApiClient, namespace: str, job: str) -> Json:
    try:
        return await asking.of_job(api, namespace, job, "victims")
    except own_rights.NoOperator as error:
        raise own_rights.refusal(error) from error


def show(answer: Json, shape: Presentation) -> None:
    """Print an answer: as a document whole, but for victims that the filters leave out."""
    if shape.format.kind in DOCUMENTS:
        victims = shape.selection.of(VICTIMS, answer["victims"], time.time())
        body = {
            "job": answer["job"]["jobName"],
            "starts": answer["starts"],
            "victims": victims,
            "obstacle": answer["obstacle"],
        }
        terminal.say(document(shape.format.kind, body))
        return
    if answer["victims"]:
        presenting.show(VICTIMS, shape, answer["victims"])
    if shape.format.kind in ("", "wide"):
        terminal.say(summary(answer))


def summary(answer: Json) -> str:
    job = answer["job"]
    before = f" (it is {job['position'] + 1}th in its queue)" if job.get("position") else ""
    if answer["starts"]:
        return f"{job['jobName']} would start without preempting anybody, were it next{before}"
    if not answer["victims"]:
        return f"{job['jobName']} would preempt nobody: {answer['obstacle'] or 'nothing is known of why'}"
    hours = sum(each["lostGpuHours"] for each in answer["victims"])
    jobs = counted(len(answer["victims"]), "job")
    return f"{jobs} would be preempted for {job['jobName']}, {hours:.1f} GPU-hours lost{before}"


VICTIMS: Final[Listing[Json]] = Listing(
    columns=(
        Column("NAMESPACE", lambda victim, _: victim["namespace"], rank=1, least=10),
        Column("JOB", lambda victim, _: victim["job"], least=20),
        Column("USER", lambda victim, _: victim["user"], rank=2, least=8, sparse=True),
        Column("QUEUE", lambda victim, _: victim["clusterQueue"], rank=1, least=10),
        Column("GPUS", lambda victim, _: str(victim["gpus"] or "–"), right=True, key=lambda victim, _: victim["gpus"]),
        Column(
            "PRIO",
            lambda victim, _: "" if victim["priority"] is None else str(victim["priority"]),
            right=True,
            key=lambda victim, _: victim["priority"],
        ),
        Column(
            "RAN", lambda victim, _: age(victim["ranSeconds"]), right=True, key=lambda victim, _: victim["ranSeconds"]
        ),
        Column(
            "LOST GPU-H",
            lambda victim, _: f"{victim['lostGpuHours']:.1f}",
            right=True,
            key=lambda victim, _: victim["lostGpuHours"],
        ),
        Column("REASON", lambda victim, _: victim["reason"]),
    ),
    as_json=lambda victim: victim,
    name=lambda victim: victim["job"],
    empty="Nobody.",
    user=lambda victim: tuple(name for name in (victim["user"], victim["namespace"]) if name),
    queue=lambda victim: (victim["clusterQueue"],),
)
