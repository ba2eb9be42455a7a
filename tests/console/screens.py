"""Pictures of the terminal: what each list looks like in a terminal of 80, 120 and 200 columns.

`.venv/bin/python -m tests.console.screens` draws them again in tests/data/screens; look at each before it is committed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any, Final

import click
from tests.builders import clusters
from tests.builders.clusters import NOW, Entry
from tests.console.texts import happened, texts
from tests.objects import PodObject

from gangline.console.commands.admin import audit, swap
from gangline.console.commands.change import preempt
from gangline.console.commands.dev import cluster
from gangline.console.commands.future import plan
from gangline.console.commands.see import events, history, node_cards, nodes, preemptions, report, share
from gangline.console.output import presenting
from gangline.console.output.columns import Listing
from gangline.console.views import jobs
from gangline.control.answers.desk import Wish
from gangline.control.answers.nodes.cards import Owner, cards_of
from gangline.control.answers.sight import ALL, Everybody, Sight
from gangline.control.answers.usage.attempts import rows as attempt_rows
from gangline.control.answers.usage.past import PastRun, rows
from gangline.control.audit.hindsight import Hindsight
from gangline.engine.model import CardUse, Device, NodeCards, Part
from gangline.forecast.history.attempts import JobAttempt, newest_first
from gangline.kube import resources as kube

Json = dict[str, Any]
FOLDER: Final = Path(__file__).parents[1] / "data" / "screens"
WIDTHS: Final = (80, 120, 200)
GPU: Final = clusters.GPU


def busy() -> Any:
    """A cluster with long names, several teams and a queue that is full."""
    short = (
        f"couldn't assign flavors to pod set worker: insufficient unused quota for {GPU} in flavor h100, 8 more needed"
    )
    wide = (
        f"couldn't assign flavors to pod set worker: insufficient quota for {GPU} in flavor h100, previously considered "
        "podsets requests (0) + current podset request (512) > maximum capacity (64)"
    )
    return clusters.world_of(
        flavor("h100"),
        *clusters.queue("language-models", 64, cohort="lab"),
        *clusters.queue("vision", 16, cohort="lab"),
        *clusters.submitted(
            "llama-3-70b-pretrain-continued-0017", 4, "6h", ago=9000, started=8000, queue="language-models"
        ),
        *named("llama-3-70b-pretrain-continued-0018", 4, "2h", ago=4000, started=3600, queue="language-models"),
        *named("probe", 1, "30m", ago=600, queue="language-models", message=short),
        *named("mixtral-8x22b-finetune-legal-summaries-a", 4, "90m", ago=500, queue="language-models", message=short),
        *named("mixtral-8x22b-finetune-legal-summaries-b", 4, "90m", ago=400, queue="language-models", message=short),
        *named("everything", 64, "1h", ago=100, queue="language-models", message=wide),
        *named("resnet", 2, "1h", ago=100, started=60, queue="vision"),
        node("gpu-a100-rack-17-node-0003"),
        node("gpu-a100-rack-17-node-0004"),
    )


def flavor(name: str) -> Entry:
    spec = {"nodeLabels": {"pool": "fast"}}
    return kube.RESOURCE_FLAVORS, {"kind": "ResourceFlavor", "metadata": {"name": name, "uid": name}, "spec": spec}


def node(name: str) -> Entry:
    labels = {"pool": "fast", "kubernetes.io/hostname": name}
    status = {
        "allocatable": {"cpu": "192", "memory": "2Ti", "pods": "110", GPU: "8"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return kube.NODES, {
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": labels},
        "spec": {},
        "status": status,
    }


def named(name: str, workers: int, expected: str, *, user: str = "mira", **more: Any) -> list[Entry]:
    """A job whose label names its user."""
    entries = clusters.submitted(name, workers, expected, **more)
    entries[0][1]["metadata"].setdefault("labels", {})["gangline.io/user"] = user
    return entries


def _pod(name: str, on: str, workload: str = "") -> PodObject:
    container = {"name": "c", "resources": {"limits": {GPU: "8"}}}
    notes = {"kueue.x-k8s.io/workload": workload} if workload else {}
    metadata = {"name": name, "namespace": "ml", "uid": name, "labels": {}, "annotations": notes}
    spec = {"containers": [container], "nodeName": on}
    return PodObject({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})


def swapped() -> Json:
    from tests.console.test_swap import OVER, struck

    return struck("llama-3-70b-pretrain-continued-0017", OVER)


def past() -> list[Json]:
    """A run that succeeded, one that failed, and one of which only its end is remembered."""
    first = PastRun(
        key="ml/w1",
        uid="1",
        job="llama-3-70b-pretrain-continued-0016",
        kind="GPUJob",
        user="mira",
        namespace="ml",
        local_queue="language-models",
        cluster_queue="language-models",
        flavor="h100",
        gpus=32,
        pods=4,
        submitted=NOW - 90_000,
        started=NOW - 80_000,
        ended=NOW - 9_000,
        state="Succeeded",
        preemptions=2,
    )
    failed = {"job": "probe", "gpus": 8, "submitted": NOW - 900.0, "started": NOW - 800.0, "ended": NOW - 700.0}
    second = replace(
        first, uid="2", key="ml/w2", state="Failed", message="worker 3 ran out of memory", preemptions=0, **failed
    )
    old = {"kind": "", "user": "", "state": "Ended", "flavor": "a100", "preemptions": None, "job": "resnet"}
    third = replace(first, uid="3", key="ml/resnet", ended=NOW - 70_000, **old)
    return list(rows([second, first, third], ALL))


def preempted_attempt() -> JobAttempt:
    """The first attempt of a gang, which was preempted for another namespace's job."""
    return JobAttempt(
        uid="1",
        reserved=NOW - 80_000.0,
        submitted=NOW - 90_000.0,
        queued=NOW - 90_000.0,
        namespace="ml",
        workload="w1",
        job_kind="GPUJob",
        job_name="llama-3-70b-pretrain-continued-0016",
        user="mira",
        local_queue="language-models",
        cluster_queue="language-models",
        flavor="h100",
        gpus=32,
        pods=4,
        started=NOW - 80_000.0,
        ready=NOW - 79_900.0,
        checkpoint=3600.0,
        ended=NOW - 40_000.0,
        end="Preempted",
        reason="InClusterQueue",
        text="preempted for ml/w9 (prioritization)",
        by="ml/w9",
        by_job="gpujob/urgent-evaluation",
    )


def attempts() -> list[Json]:
    """One in progress whose first attempt was preempted, one that failed, one that was cancelled, and one that nobody saw end."""
    first = replace(preempted_attempt(), idle=32 * 7200.0)
    again = replace(first, number=2, reserved=NOW - 9000.0, started=NOW - 9000.0, ready=NOW - 8900.0, ended=None)
    again = replace(again, end="", reason="", text="", by="", by_job="", idle=None)
    probe = replace(
        first, uid="2", job_name="probe", gpus=8, reserved=NOW - 800.0, started=NOW - 800.0, ready=NOW - 790.0
    )
    probe = replace(probe, end="Failed", text="worker 3 ran out of memory", by="", ended=NOW - 700.0, checkpoint=None)
    gone = replace(probe, uid="3", job_name="resnet", end="Cancelled", text="", ended=NOW - 600.0, idle=None)
    lost = replace(gone, uid="4", job_name="sweep-17", end="Released", text="No operator watched when it ended.")
    return list(attempt_rows(newest_first([first, again, probe, gone, lost], 9), ALL, {}, NOW))


def used() -> Json:
    """Sums of a month by user: one has lost much, one was idle, and one is hidden; with their total."""
    lost = dict.fromkeys(report.CAUSES, 0.0)
    mira: Json = {
        "name": "mira",
        "hidden": False,
        "jobs": 31,
        "attempts": 44,
        "gpuHours": 5120.25,
        "usefulGpuHours": 4300.0,
        "startingGpuHours": 120.25,
        "idleGpuHours": None,
        "lost": {**lost, "preemption": 400.0, "failure": 300.0},
        "waitedGpuHours": 812.5,
        "medianWaitSeconds": 1260.0,
        "preemptions": 9,
        "weightedGpuHours": None,
        "flavors": [
            {"flavor": "h100", "gpuHours": 5000.0, "lostGpuHours": 700.0},
            {"flavor": "a100", "gpuHours": 120.25, "lostGpuHours": 0.0},
        ],
    }
    mine = {"h100": 640.0}
    tom = {
        **mira,
        "name": "tom-of-the-language-models-team",
        "jobs": 4,
        "attempts": 4,
        "gpuHours": 640.0,
        "usefulGpuHours": 600.0,
        "startingGpuHours": 8.0,
        "idleGpuHours": 212.0,
        "lost": {**lost, "overrun": 16.0, "cancel": 16.0},
        "preemptions": 0,
        "flavors": [{"flavor": flavor, "gpuHours": hours, "lostGpuHours": 32.0} for flavor, hours in mine.items()],
    }
    hidden = {**tom, "name": "hidden-1a2b3c4d", "hidden": True, "medianWaitSeconds": None, "idleGpuHours": None}
    total = {
        **mira,
        "name": "",
        "jobs": 39,
        "attempts": 52,
        "gpuHours": 6400.25,
        "usefulGpuHours": 5500.0,
        "startingGpuHours": 136.25,
        "idleGpuHours": 212.0,
        "lost": {**lost, "preemption": 400.0, "failure": 300.0, "overrun": 32.0, "cancel": 32.0},
        "flavors": [
            {"flavor": "h100", "gpuHours": 6280.0, "lostGpuHours": 764.0},
            {"flavor": "a100", "gpuHours": 120.25, "lostGpuHours": 0.0},
        ],
    }
    items = [{"metadata": {"name": each["name"]}, **each} for each in (mira, tom, hidden)]
    return {"metadata": {}, "now": NOW, "start": NOW - 30 * 86_400, "end": NOW, "items": items, "total": total}


def reported(prices: report.PriceList | None = None) -> tuple[Listing[Any], Sequence[Any], str, float]:
    made = report.Report.of("user", UTC, used(), prices)
    return made.listing(), [*made.rows, made.total], "", NOW


def preempted() -> list[Json]:
    """Two preemptions of a job, one of them for another namespace's job, and one of a hidden job for ours."""
    first = replace(preempted_attempt(), by_queue="language-models")
    again = replace(first, number=2, reserved=NOW - 30_000.0, started=NOW - 30_000.0, ready=NOW - 29_900.0)
    again = replace(again, ended=NOW - 9000.0, reason="InCohortReclamation")
    again = replace(again, by="vision/resnet", by_job="job/resnet-152", by_queue="vision")
    hidden = replace(
        first, uid="2", namespace="secret", workload="w2", gpus=8, ended=NOW - 600.0, cluster_queue="vision"
    )
    sight = Sight(namespaces=frozenset({"ml"}), queues=frozenset({"language-models", "vision"}), secret=b"fixed")
    loss = {"workloads": 2, "lostGpuHours": 26.75}, {"workloads": 1, "lostGpuHours": 1.5}
    cheaper = Hindsight({"chosen": loss[0], "instead": loss[1], "spared": True})
    hindsights = {again.key: cheaper, first.key: Hindsight(), hidden.key: Hindsight(unknown="it is not recorded")}
    return list(attempt_rows([hidden, again, first], sight, {}, NOW, hindsights))


def victims() -> list[Json]:
    one = {
        "namespace": "ml",
        "job": "gpujob/llama-3-70b-pretrain-continued-0016",
        "user": "mira",
        "clusterQueue": "language-models",
        "priority": 0,
        "gpus": 32,
        "reason": "InClusterQueue",
        "ranSeconds": 7200,
        "unsavedSeconds": 1800,
        "lostGpuHours": 16.0,
    }
    hidden = {"namespace": "", "job": "hidden-1a2b3c4d", "user": "", "priority": None, "reason": "InCohortReclamation"}
    return [one, {**one, **hidden, "gpus": 8, "lostGpuHours": 4.0}]


def carded() -> list[Json]:
    """A node with a shared card, a free one and a failed one, and a pod on some card; a node without an inventory."""
    name, model = "gpu-a100-rack-17-node-0003", "NVIDIA-A100-SXM4-80GB"
    devices = tuple(
        Device(
            name, f"GPU-7c1f{number}a2e-4b77-9d05-5f2a-0c9e8b7d6a51", number, model, memory=81_920, healthy=number != 2
        )
        for number in range(3)
    )
    uses = (
        CardUse("ml/probe-0", devices[0].uuid, Part(500, 40_960), "ml/probe"),
        CardUse("ml/probe-1", devices[0].uuid, Part(250, 20_480), "ml/probe"),
        CardUse("vision/serving", devices[0].uuid, Part(100, 1_024)),
        CardUse("ml/notebook-mira", "", Part(200, 8_192)),
    )
    owners = {f"ml/probe-{number}": Owner("probe", "ml", workload="ml/probe") for number in range(2)}
    cards = cards_of(NodeCards(name, devices, uses), owners).seen_by(
        Sight(namespaces=frozenset({"ml"}), secret=b"fixed")
    )
    return node_cards.of([{"metadata": {"name": name}, **cards.as_json()}, {"metadata": {"name": "cpu-1"}}])


def reserved(user: str, since: float, job: str = "llama-3-70b-pretrain-continued-0017") -> Json:
    """A reserved start, half a minute late."""
    times = {"planned": NOW - since - 600, "promised": NOW - since - 31.5, "started": NOW - since}
    return {"namespace": "ml", "user": user, "job": job, **times, "missedBy": ""}


def audited() -> list[Json]:
    hidden = {**reserved("", 7200, "hidden-1a2b3c4d"), "namespace": "", "promised": NOW - 7200}
    unpromised = {**reserved("tom", 90_000), "promised": None}
    return audit.starts_of([{"clusterQueue": "language-models", "starts": [hidden, unpromised, reserved("mira", 60)]}])


def moving() -> list[Json]:
    """A gang that moves to known hosts, one that starts again, a hidden one without room and one that stays by policy."""
    one = {
        "node": "gpu-a100-rack-17-node-0003",
        "hidden": False,
        "namespace": "ml",
        "job": "gpujob/llama-3-70b-pretrain-continued-0017",
        "user": "mira",
        "queue": "main",
        "clusterQueue": "language-models",
        "gpus": 32,
        "pods": 4,
        "moves": True,
        "how": "Replace",
        "to": ["gpu-a100-rack-17-node-0004"],
        "obstacle": "",
    }
    stays = {"moves": False, "how": "", "to": []}
    hidden = {"hidden": True, "namespace": "", "job": "hidden-1a2b3c4d", "user": "", "queue": ""}
    return [
        one,
        {**one, "job": "jobset/probe", "how": "Restart", "to": [], "gpus": 8},
        {**one, **stays, "job": "job/resnet", "obstacle": "no healthy nodes have room for it without a preemption"},
        {**one, **stays, **hidden, "node": "gpu-a100-rack-17-node-0004"},
    ]


def planes() -> list[cluster.ClusterProcess]:
    """A control plane without its scheduler, whose operator has ended, and one that is up."""
    root = Path("/home/mira/.local/state/gangline/clusters")
    found = [
        cluster.ClusterProcess(plane, name, pid, root / plane / f"{name}.log")
        for plane in ("default", "experiments-with-many-nodes")
        for pid, name in enumerate(("etcd", "kube-apiserver", "kube-scheduler"), 41_000)
    ]
    found[2] = replace(found[2], pid=None)
    log = root / "default" / "services" / "operator.log"
    return [*found[:3], cluster.ClusterProcess("default", "gangline operator", None, log), *found[3:]]


async def scenes() -> dict[str, tuple[Listing[Any], Sequence[Any], str, float]]:
    """Name -> the list, its entries, the value of -o and the present time."""
    answers, beside = busy().answers(), busy()
    beside.pods.upsert(_pod("serving-5d8f7c9b4-x2x7k", "gpu-a100-rack-17-node-0003"))
    found = (await answers.jobs(Everybody(), Wish("ml", times=True))).items
    waiting = [item for item in found if item["state"] == "Pending"]
    runs = (await answers.plan(Everybody(), "", "", 86_400)).items
    machines = (await beside.answers().nodes(Everybody(), "")).items
    shares = (await answers.shares(Everybody(), "")).items
    from tests.console.objects import NOW as LATER

    return {
        "queue": (jobs.LISTING, jobs.of_items(found), "", NOW),
        "queue-times": (jobs.listing(with_times=True), jobs.of_items(found), "", NOW),
        "eta": (jobs.STARTS, jobs.by_start(jobs.of_items(waiting)), "", NOW),
        "plan": (plan.listing(86_400), runs, "", NOW),
        "nodes": (nodes.listing(), machines, "", NOW),
        "nodes-cards": (node_cards.listing(2), carded(), "", NOW),
        "share": (share.SHARES, shares, "", NOW),
        "limits": (share.LIMITS, share.quotas(shares), "", NOW),
        "events": (events.LISTING, happened(), "", NOW),
        "history": (history.LISTING, past(), "", NOW),
        "history-attempts": (history.ATTEMPTS, attempts(), "", NOW),
        "preemptions": (preemptions.LISTING, preempted(), "", NOW),
        "report": reported(),
        "report-prices": reported(report.PriceList("EUR", {"h100": 2.5, "a100": 1.2})),
        "preempt": (preempt.VICTIMS, victims(), "", NOW),
        "audit-starts": (audit.STARTS, audited(), "", NOW),
        "swap-dry-run": (swap.MOVES, moving(), "", NOW),
        "cluster-status": (cluster.COMPONENTS, planes(), "", NOW),
        "swap": (swap.LISTING, swap.rows_of([swapped()]), "", LATER),
    }


def draw(listing: Listing[Any], entries: Sequence[Any], kind: str, now: float, width: int) -> str:
    shape = presenting.Presentation(presenting.OutputFormat(kind))
    return click.unstyle("\n".join(presenting.drawn(listing, shape, entries, now, width))) + "\n"


def in_utc(work: Callable[[], Any]) -> Any:
    """Pictures have times of the wall clock."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        return work()
    finally:
        os.environ.pop("TZ")
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()


def pictures() -> dict[str, str]:
    """File name -> picture."""
    return in_utc(
        lambda: (
            {
                f"{name}-{width}.txt": draw(*scene, width)
                for name, scene in asyncio.run(scenes()).items()
                for width in WIDTHS
            }
            | {
                f"{name}-{width}.txt": click.unstyle("\n".join(draw_text(width))) + "\n"
                for name, draw_text in texts().items()
                for width in WIDTHS
            }
        )
    )


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pictures().items():
        (FOLDER / name).write_text(text)
