"""`gangline logs`: what the pods of a job print, each line with the pod's rank in front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import click

from gangline.console.options import Span
from gangline.console.output import terminal
from gangline.console.views import access, completing, follow_job, pod_logs, targets
from gangline.console.views.pod_logs import LogQuery, RankedPod


@click.command("logs")
@click.argument("job", metavar="JOB", shell_complete=completing.jobs)
@click.option("-f", "--follow", is_flag=True, help="Go on showing what is printed, until the job ends.")
@click.option("--rank", "ranks", multiple=True, type=click.IntRange(min=0), help="Show only these ranks.")
@click.option("--tail", type=click.IntRange(0, 1_000_000), help="Only so many lines of each pod, from the end.")
@click.option("--since", type=Span(), help="Only lines of this time, such as 10m.")
@click.option("-c", "--container", default="", help="The container whose lines are shown; by default the first one.")
@click.option("--no-prefix", is_flag=True, help="Lines without the rank in front.")
@access.cluster_options
def command(
    job: str,
    follow: bool,
    ranks: tuple[int, ...],
    tail: int | None,
    since: float | None,
    container: str,
    no_prefix: bool,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Show what the pods of JOB have printed, of any kind of job and as long as the pods exist, in the order of time."""
    query = LogQuery(container, tail, math.ceil(since) if since else None)

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            if follow:
                await follow_job.follow(api, where, job, query, ranks, prefix=not no_prefix)
                return
            target = await targets.find(api, where, job)
            pods = _chosen(await pod_logs.pods_of(api, where, target), ranks, target.title)
            by_rank = {pod.rank: pod for pod in pods}
            async for line in pod_logs.so_far(api, where, pods, query):
                terminal.say(follow_job.shown(by_rank[line.rank], line, prefix=not no_prefix))

    access.run(work())


def _chosen(pods: Sequence[RankedPod], ranks: Sequence[int], title: str) -> Sequence[RankedPod]:
    """The pods of these ranks, of all without any. Raises click.ClickException where there are none, or too many."""
    if not pods:
        raise click.ClickException(f"{title} has no pods: they are there once it has started, and until it is deleted")
    found = [pod for pod in pods if pod.rank in ranks] if ranks else pods
    if missing := sorted(set(ranks) - {pod.rank for pod in pods}):
        raise click.ClickException(f"{title} has no rank {missing[0]}: ranks are 0 to {max(pod.rank for pod in pods)}")
    if len(found) > pod_logs.MOST_PODS:
        raise click.ClickException(
            f"{title} has {len(found)} pods, more than {pod_logs.MOST_PODS} at a time: choose by --rank"
        )
    return found
