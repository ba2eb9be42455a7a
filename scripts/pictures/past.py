"""The days before the pictures: a made-up load of the teams, played by Gangline's own replay. Its runs become the history."""

from __future__ import annotations

import csv
import math
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.pictures.lab import NODES

from gangline.forecast.history.attempts import FAILED, SUCCEEDED, JobAttempt
from gangline.forecast.history.run_store import HistoryStore
from gangline.forecast.history.runs import Run
from gangline.traces import TraceJob, native

HOUR: Final = 3600.0
DAYS: Final = 4.0
#: so long before now the last of these runs ends
END: Final = 120.0


@dataclass(frozen=True, slots=True)
class Kind:
    """Jobs that come again and again: the median of their hours, and how often they come in a day."""

    name: str
    team: str
    users: tuple[str, ...]
    flavor: str
    gpus: int
    hours: float
    a_day: float


KINDS: Final = (
    Kind("llama-8b-sft", "language", ("ada", "mira"), "h100", 16, 2.2, 14),
    Kind("dpo-run", "language", ("mira",), "h100", 16, 1.2, 12),
    Kind("qwen-sft", "language", ("noor",), "h100", 8, 0.8, 22),
    Kind("rlhf-round", "language", ("ada",), "h100", 16, 3.0, 6),
    Kind("mixtral", "language", ("noor",), "h100", 64, 4.5, 3),
    Kind("llama-70b-pretrain", "language", ("ada",), "h100", 64, 7.5, 0.7),
    Kind("segment-anything", "vision", ("ben",), "h100", 8, 1.0, 18),
    Kind("video-diffusion", "vision", ("yuki",), "h100", 32, 2.4, 6),
    Kind("protein-fold", "science", ("cleo",), "h100", 16, 2.8, 7),
    Kind("genome-lm", "science", ("emil",), "h100", 24, 2.0, 4),
    Kind("vit-large", "vision", ("sam",), "a100", 32, 2.6, 12),
    Kind("pose-net", "vision", ("ben",), "a100", 8, 1.5, 16),
    Kind("detr-sweep", "vision", ("yuki",), "a100", 4, 1.6, 30),
    Kind("eval-harness", "language", ("noor", "mira"), "a100", 8, 0.9, 22),
    Kind("climate-emulator", "science", ("emil",), "a100", 16, 3.3, 14),
    Kind("md-ensemble", "science", ("cleo",), "a100", 16, 4.0, 10),
    Kind("ci-gpu", "platform", ("ci",), "l4", 4, 33 / HOUR, 30),
)
CLUSTER: Final = {"h100": 160, "a100": 128, "l4": 16}
#: runs are at least so long
SHORTEST: Final = 12.0
#: of attempts, so many fail
FAILS: Final = 0.06
#: less than the cluster can take, so that most of what was submitted has run
LOAD: Final = 0.72


def remember(store: Path, now: float) -> list[Run]:
    """Write the runs of the days before `now` into a history. Returns them."""
    found = [run for flavor, gpus in CLUSTER.items() for run in _played(flavor, gpus, now)]
    store.parent.mkdir(parents=True, exist_ok=True)
    with HistoryStore(str(store)) as history:
        history.put(found)
    return found


def remember_attempts(store: Path, runs: list[Run], cluster: str) -> None:
    """Write the attempts of these runs into a history, as those of a cluster: one attempt each, on the nodes that were free."""
    with HistoryStore(str(store)) as history:
        history.put_attempts(cluster, _attempts(runs))


def _attempts(runs: list[Run]) -> Iterator[JobAttempt]:
    drawn = random.Random("gangline attempts")
    pools = {
        pool.name: [(f"{pool.name}-{n}", int(pool.allocatable["nvidia.com/gpu"])) for n in range(pool.count)]
        for pool in NODES
    }
    holding: list[tuple[float, dict[str, int]]] = []
    for run in sorted(runs, key=lambda run: run.start or 0.0):
        start, finish = run.start or 0.0, run.finish or 0.0
        holding = [(end, held) for end, held in holding if end > start]
        used = Counter[str]()
        for _, held in holding:
            used.update(held)
        left, held = run.gpus, dict[str, int]()
        for node, gpus in pools[run.flavor]:
            if (some := min(left, gpus - used[node])) > 0 and some in (left, gpus):
                held[node], left = some, left - some
        holding.append((finish, held))
        failed = drawn.random() < FAILS
        yield JobAttempt(
            uid=run.uid,
            reserved=start,
            submitted=run.submit,
            queued=run.submit,
            namespace=run.namespace,
            workload=f"gpujob-{run.name}",
            job_kind="GPUJob",
            job_name=run.name,
            user=run.user,
            local_queue=run.queue,
            cluster_queue=run.namespace.removeprefix("team-"),
            flavor=run.flavor,
            gpus=run.gpus,
            pods=run.pods,
            started=start,
            ready=min(finish, start + drawn.uniform(8, 90)),
            checkpoint=1800.0,
            ended=finish,
            end=FAILED if failed else SUCCEEDED,
            reason="Failed" if failed else "Succeeded",
            text="Job failed" if failed else "Job finished successfully",
            nodes=tuple(sorted(held)),
            node_count=len(held),
        )


def _played(flavor: str, gpus: int, now: float) -> Iterator[Run]:
    jobs = {job.id: (job, kind) for job, kind in _load(flavor, now)}
    with tempfile.TemporaryDirectory() as folder:
        trace, out = Path(folder) / "trace.csv", Path(folder) / "out"
        native.write(trace, sorted((job for job, _ in jobs.values()), key=lambda job: job.submit))
        replay = [sys.executable, "-m", "gangline.console.cli", "admin", "replay", str(trace), "--gpus", str(gpus)]
        options = ["--policy", "easy-true", "--schedule", "--workers", "1", "--out", str(out)]
        subprocess.run([*replay, *options], check=True, capture_output=True)
        with (out / "schedule" / "easy-true.csv").open() as rows:
            for row in csv.DictReader(rows):
                if row["outcome"] == "finished" and float(row["end"]) < now - END:
                    job, kind = jobs[row["id"]]
                    yield Run(
                        uid=f"past-{job.id}",
                        submit=job.submit,
                        gpus=job.gpus,
                        pods=job.pods,
                        namespace=f"team-{kind.team}",
                        user=job.user,
                        queue="gpus",
                        name=job.name,
                        image=f"example.com/{kind.name}",
                        flavor=flavor,
                        hint=job.hint,
                        start=float(row["start"]),
                        finish=float(row["end"]),
                    )


def _load(flavor: str, now: float) -> Iterator[tuple[TraceJob, Kind]]:
    """Jobs of a flavor. Those of the last hours are shorter and more, since most of them have to end before now."""
    drawn = random.Random(f"gangline {flavor}")
    for kind in (kind for kind in KINDS if kind.flavor == flavor):
        for number in range(round(kind.a_day * DAYS)):
            submit = now - drawn.random() ** 1.3 * DAYS * 24 * HOUR - 0.08 * HOUR
            seconds = LOAD * kind.hours * HOUR * math.exp(drawn.gauss(0.0, 0.55))
            seconds = max(SHORTEST, min(seconds, 0.6 * (now - submit)))
            hint = seconds * drawn.uniform(1.0, 1.6)
            hint = 5.0 * round(hint / 5) if hint < 300 else 600.0 * math.ceil(hint / 600)
            name = f"{kind.name}-{number + 1}"
            job = TraceJob(
                id=f"{flavor}-{name}",
                submit=submit,
                duration=seconds,
                gpus=kind.gpus,
                user=drawn.choice(kind.users),
                vc=kind.team,
                name=name,
                pods=max(1, kind.gpus // 8),
                hint=hint,
                flavor=flavor,
            )
            yield job, kind
