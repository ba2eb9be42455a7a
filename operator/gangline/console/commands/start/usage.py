"""`gangline usage JOB`: how busy the GPUs of a job's pods are, as Slurm's sstat says of running steps."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from gangline.console.output import presenting, remarks
from gangline.console.output.columns import Column, Listing
from gangline.console.output.presenting import Presentation
from gangline.console.views import access, asking, completing, own_rights, pod_logs, targets
from gangline.control.answers.workloads.words import age
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json

NOT_MEASURED: Final = "not measured"


@click.command("usage")
@click.argument("job", metavar="JOB", shell_complete=completing.jobs)
@access.cluster_options
@presenting.options()
def command(job: str, kubeconfig: Path | None, context: str | None, namespace: str | None, shape: Presentation) -> None:
    """Show how busy the GPUs of each pod of JOB are, their memory in use, and since when they are idle.

    These are measurements of the operator's telemetry; where it has none of a pod, the pod is "not measured".
    """

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace

            async def look() -> list[Json]:
                return await _pods(api, where, job)

            await presenting.present(LISTING, shape, look)

    access.run(work())


async def _pods(api: ApiClient, namespace: str, job: str) -> list[Json]:
    try:
        return (await asking.of_job(api, namespace, job, "pods"))["pods"]
    except own_rights.NoOperator as error:
        remarks.remark(f"{error}: the use of GPUs is not known")
    target = await targets.find(api, namespace, job)
    return [
        {"name": pod.name, "podSet": pod.prefix, "rank": pod.rank, "node": "", "state": pod.phase}
        for pod in await pod_logs.pods_of(api, namespace, target)
    ]


def _use(pod: Json) -> str:
    use = pod.get("gpuUse")
    return f"{use * 100:.0f} %" if use is not None else NOT_MEASURED


def _memory(pod: Json) -> str:
    held = pod.get("gpuMemoryBytes")
    return f"{held / 2**30:.1f} GiB" if held is not None else ""


def _idle(pod: Json, now: float) -> str:
    since = pod.get("idleSince")
    return f"for {age(max(0.0, now - since))}" if since is not None else ""


LISTING: Final[Listing[Json]] = Listing(
    columns=(
        Column("RANK", lambda pod, _: "–" if pod["rank"] is None else str(pod["rank"]), right=True),
        Column("ROLE", lambda pod, _: pod["podSet"], rank=3),
        Column("POD", lambda pod, _: pod["name"], least=20),
        Column("NODE", lambda pod, _: pod["node"] or "–", rank=2, least=10),
        Column("STATE", lambda pod, _: pod["state"], rank=1),
        Column("GPU USE", lambda pod, _: _use(pod), right=True, key=lambda pod, _: pod.get("gpuUse") or 0.0),
        Column("GPU MEMORY", lambda pod, _: _memory(pod), right=True, sparse=True),
        Column("IDLE", _idle, sparse=True),
    ),
    as_json=lambda pod: {"gpuUse": None, "gpuMemoryBytes": None, "idleSince": None, "measuredAt": None, **pod},
    name=lambda pod: f"pod/{pod['name']}",
    empty="The job has no pods: they are there once it has started, and until it is deleted.",
    instants=("created", "idleSince", "measuredAt"),
)
