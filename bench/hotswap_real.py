"""How long a real training stands still when a node under it is cut off: kubelets, containers, and the ranks of a gang in them.

    python -m bench.hotswap_real --trials 10 --kubernetes 10

Each trial cuts one node of three off the network under the gang of `examples/pytorch-ddp` (four ranks, Gangline's policy as
there), and follows it by watches until rank 0 has done its next step. Then the node is connected again.

*kubernetes* is the same training without Gangline: so many Indexed Jobs with a headless Service, under which one node is cut off.
Their ranks give up on a lost peer after 30 s and begin again when all are there.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from bench.hotswap_field import FieldError, Watched
from bench.load import quantile
from bench.report import rounded
from gangline.api import names
from gangline.api.read.workloads import swap_record
from gangline.console.run import example, local_needs
from gangline.console.stack import stack
from gangline.control.nodes.recovery.silent_nodes import is_silent
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.connection import Connection, local_connection
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.local import LocalControlPlane
from gangline.devcluster.nodes import is_ready
from gangline.devcluster.real.settings import RealPool
from gangline.kube.client import ApiClient
from gangline.kube.resources import BY_KIND, NODES, PODS, WORKLOADS, Json
from gangline.objects import Stored

EXAMPLE = example.bundled(local_needs.EXAMPLE)
NAMESPACE, GANG, RANKS = "training", "ddp", 4
PACE, EVERY = 0.1, 20
#: seconds that a node which came back is not used; each failure before doubles that, up to the factor. And for it to be seen.
SOAK, LONGEST_SOAK, MARGIN = 1, 16, 2.0
#: seconds after which ranks without Gangline give a step up
GIVE_UP = 30
#: new pods that take longer than this are reported, in seconds
SLOW = 5.0
#: goals, in seconds
GOALS = {"noticed": 12.0, "decided": 1.0, "replaced": 3.0, "total": 20.0}


@dataclass(frozen=True, slots=True)
class Parts:
    """Seconds that each part took: until the node counted as lost; the recovery was recorded; the old pods were gone or left
    behind; all new pods existed; all were ready; and rank 0 had done a step. `replaced`: from the decision to the new pods.
    `lost_steps` were done again.
    """

    noticed: float
    decided: float
    gone: float
    created: float
    running: float
    first_step: float
    replaced: float
    total: float
    lost_steps: int


class Losses:
    """What rank 0 of a training notes in the shared volume."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "losses.jsonl"

    def rows(self) -> list[Json]:
        return [json.loads(line) for line in self._file.read_text().splitlines()] if self._file.exists() else []

    async def until(self, condition: Callable[[list[Json]], bool], within: float, what: str) -> list[Json]:
        deadline = time.monotonic() + within
        while not condition(rows := self.rows()):
            if time.monotonic() > deadline:
                raise FieldError(f"not within {within:g} s: {what}")
            await asyncio.sleep(0.02)
        return rows

    async def steps(self, count: int, run: int, within: float = 120.0) -> list[Json]:
        """Wait until a run has done so many steps."""
        done = lambda rows: sum(row["run"] == run and "step" in row for row in rows) >= count  # noqa: E731
        return await self.until(done, within, f"{count} steps of run {run}")


# --- with Gangline ----------------------------------------------------------------------------------------------------


async def trials(plane: LocalControlPlane, client: ApiClient, volume: Path, count: int) -> list[Parts]:
    await apply(client, volume, "00-storage.yaml", "10-queues.yaml", "20-gpujob.yaml")
    losses, failures = Losses(volume / GANG), Counter[str]()
    found: list[Parts] = []
    async with Watched.of(client, WORKLOADS) as watched:
        for run in range(1, count + 1):
            await losses.steps(EVERY + 5, run)
            node = min({pod["spec"]["nodeName"] for pod in pods(watched)}, key=lambda name: (failures[name], name))
            failures[node] += 1
            found.append(await one(plane, watched, losses, node, run))
            say(f"{run}/{count}: " + ", ".join(f"{name} {value:.2f}" for name, value in asdict(found[-1]).items()))
            await asyncio.to_thread(plane.start_real_node, node)
            await watched.when(lambda node=node: is_back(watched, node), f"{node} is back")
            await asyncio.sleep(SOAK * min(2 ** (failures[node] - 1), LONGEST_SOAK) + MARGIN)
    return found


async def one(plane: LocalControlPlane, watched: Watched, losses: Losses, node: str, run: int) -> Parts:
    """Cut the node off, and follow the gang until it trains again."""
    old = {pod["metadata"]["uid"] for pod in pods(watched)}
    swaps = recorded(watched)
    assert plane.real is not None
    cut = time.monotonic()
    await asyncio.to_thread(plane.real.cut_node, node)

    def fresh(*, ready: bool) -> int:
        chosen = [pod for pod in pods(watched) if pod["metadata"]["uid"] not in old]
        return sum(not ready or Stored(pod).true_condition("Ready") is not None for pod in chosen)

    def none_left() -> bool:
        return not any(pod["metadata"]["uid"] in old and belongs(pod) for pod in watched.objects[PODS].values())

    first = asyncio.ensure_future(losses.steps(1, run + 1))
    times = [
        cut,
        await watched.when(lambda: lost(watched.objects[NODES].get(node)), f"{node} counts as lost"),
        await watched.when(lambda: recorded(watched) > swaps, "the recovery is recorded"),
        await watched.when(none_left, "the old pods are gone or left behind"),
        await watched.when(lambda: fresh(ready=False) == RANKS, "new pods exist"),
        await watched.when(lambda: fresh(ready=True) == RANKS, "new pods are ready"),
    ]
    if times[-1] - times[-2] > SLOW:
        for pod in pods(watched):
            say(f"slow: {pod['metadata']['name']} on {pod['spec'].get('nodeName')}: {milestones(pod)}")
    rows = await first
    times.append(time.monotonic())
    durations = [after - before for before, after in itertools.pairwise(times)]
    last = max(row["step"] for row in rows if row["run"] == run and "step" in row)
    start = next(row["start"] for row in rows if row["run"] == run + 1)
    return Parts(*durations, replaced=times[4] - times[2], total=times[-1] - cut, lost_steps=last - start)


def milestones(pod: Json) -> str:
    """When a pod was created, when its conditions came true, and when its container started."""
    times = {"created": pod["metadata"]["creationTimestamp"]}
    times |= {row["type"]: row.get("lastTransitionTime") for row in pod["status"].get("conditions") or ()}
    states = (row.get("state") or {} for row in pod["status"].get("containerStatuses") or ())
    times["started"] = ", ".join(str((state.get("running") or {}).get("startedAt")) for state in states)
    return ", ".join(f"{name} {time}" for name, time in times.items())


def pods(watched: Watched) -> list[Json]:
    """The gang's pods that are not about to end."""
    return [
        pod for pod in watched.objects[PODS].values() if belongs(pod) and "deletionTimestamp" not in pod["metadata"]
    ]


def belongs(pod: Json) -> bool:
    ended = pod["status"].get("phase") in ("Succeeded", "Failed")
    return (pod["metadata"].get("labels") or {}).get(names.GPUJOB_LABEL) == GANG and not ended


def recorded(watched: Watched) -> int:
    """When the last recovery was decided, in milliseconds."""
    swaps = (swap for workload in watched.objects[WORKLOADS].values() for swap in swap_record.of(workload).log)
    return max((swap.decided for swap in swaps), default=0)


def is_back(watched: Watched, node: str) -> bool:
    """Whether the node is trusted and hears the API server again: it has ended the pods that were left behind. Its kubelet's
    connections of before may take another quarter of a minute for that.
    """
    ending = (pod for pod in watched.objects[PODS].values() if "deletionTimestamp" in pod["metadata"])
    return not lost(watched.objects[NODES].get(node)) and node not in {pod["spec"].get("nodeName") for pod in ending}


def lost(node: Json | None) -> bool:
    return node is None or is_silent(node) or not is_ready(node)


# --- without it -------------------------------------------------------------------------------------------------------


async def alone(plane: LocalControlPlane, client: ApiClient, volume: Path, count: int) -> list[Json]:
    """Kubernetes by itself. Returns for each gang the seconds until NotReady, until all its pods ran, and until a step."""
    await apply(client, volume, "00-storage.yaml")
    gangs = [f"alone-{number}" for number in range(count)]
    for name in gangs:
        await put(client, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {
            "clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"job-name": name}}})  # fmt: skip
        await put(client, indexed_job(name))
    async with Watched.of(client) as watched:
        everyone = [Losses(volume / name) for name in gangs]
        for losses in everyone:
            await losses.steps(EVERY + 5, 1)
        node = sorted(plane.real.pool.addresses)[1]  # type: ignore[union-attr]
        cut, noted = time.monotonic(), time.time()
        await asyncio.to_thread(plane.real.cut_node, node)  # type: ignore[union-attr]
        noticed = await watched.when(lambda: lost(watched.objects[NODES].get(node)), f"{node} is NotReady") - cut
        say(f"kubernetes: noticed after {noticed:.1f} s; its pods stay for five minutes more")
        steps = lambda rows: any(row.get("time", 0) > noted + GIVE_UP for row in rows)  # noqa: E731
        waiting = (losses.until(steps, 560.0, "a step without the lost node") for losses in everyone)
        found = await asyncio.gather(*waiting)
    after = [min(row["time"] for row in rows if row.get("time", 0) > noted + GIVE_UP) - noted for rows in found]
    return [{"noticed": noticed, "total": each} for each in after]


def indexed_job(name: str) -> Json:
    """The example's training as a Job, spread over the nodes; what fails is started again."""
    [job] = documents("20-gpujob.yaml")
    template = job["spec"]["template"]
    template["metadata"] = {"labels": {"gang": name}}
    spec, container = template["spec"], template["spec"]["containers"][0]
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    place = {"MASTER_ADDR": f"{name}-0.{name}", "MASTER_PORT": "29500", "WORLD_SIZE": str(RANKS)}
    container["env"] = [{"name": "RANK", "valueFrom": index}, *({"name": k, "value": v} for k, v in place.items())]
    container["args"] = [*arguments(name), f"--timeout={GIVE_UP}"]
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    spec["topologySpreadConstraints"] = [{**spread, "labelSelector": {"matchLabels": {"gang": name}}}]
    spec |= {"restartPolicy": "Never", "subdomain": name}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "completionMode": "Indexed",
            "completions": RANKS,
            "parallelism": RANKS,
            "backoffLimit": 1000,
            "template": template,
        },
    }


# --- both -------------------------------------------------------------------------------------------------------------


def arguments(name: str) -> list[str]:
    return [f"--dir=/checkpoints/{name}", "--steps=1000000", f"--checkpoint-every={EVERY}", f"--pace={PACE}"]


def documents(name: str) -> list[Json]:
    return list(yaml.safe_load_all((EXAMPLE / name).read_text()))


async def apply(client: ApiClient, volume: Path, *files: str) -> None:
    for manifest in (each for name in files for each in documents(name)):
        match manifest["kind"]:
            case "PersistentVolume":
                manifest["spec"]["hostPath"]["path"] = str(volume)
            case "QueuePolicy":
                manifest["spec"]["recovery"]["soak"] = f"{SOAK}s"
                manifest["spec"]["recovery"]["swapBudget"] = 1000
            case "GPUJob":
                manifest["spec"]["template"]["spec"]["containers"][0]["args"] = arguments(GANG)
            case _:
                pass
        await put(client, manifest)


async def put(client: ApiClient, manifest: Json) -> None:
    resource = BY_KIND[manifest["kind"]]
    namespace = manifest["metadata"].get("namespace") if resource.namespaced else None
    await client.patch(resource, namespace, manifest["metadata"]["name"], manifest, kind="apply", field_manager="bench")


@contextmanager
def cluster(lease: int, *, torch: bool) -> Iterator[tuple[LocalControlPlane, Connection, Path]]:
    """Three real nodes with the training's image, and a directory that they share."""
    archive = local_needs.archive(say, torch=torch)
    with tempfile.TemporaryDirectory(prefix="gangline-hotswap-") as directory:
        Path(directory).chmod(0o1777)
        with LocalControlPlane(ControlPlaneOptions(real=RealPool(3, lease=lease))) as plane:
            assert plane.real is not None
            say("loading the image on three nodes")
            plane.real.load_image(archive)
            yield plane, local_connection(plane), Path(directory)


def with_gangline(count: int, lease: int, *, torch: bool) -> list[Parts]:
    async def run(plane: LocalControlPlane, connection: Connection, volume: Path) -> list[Parts]:
        async with connection.client() as client:
            return await trials(plane, client, volume, count)

    with cluster(lease, torch=torch) as (plane, connection, volume):
        services = stack.services_of(connection)
        try:
            stack.bring_up(connection, services, say, stack.Wishes())
            return asyncio.run(run(plane, connection, volume))
        finally:
            services.stop()


def without(count: int, lease: int, *, torch: bool) -> list[Json]:
    async def run(plane: LocalControlPlane, connection: Connection, volume: Path) -> list[Json]:
        async with connection.client() as client:
            return await alone(plane, client, volume, count)

    with cluster(lease, torch=torch) as standing:
        return asyncio.run(run(*standing))


def summary(rows: Sequence[Json]) -> Json:
    """p50, p95 and maximum of each part, in seconds."""
    if not rows:
        return {"trials": 0}
    parts: Json = {}
    for name in rows[0]:
        values = sorted(row[name] for row in rows)
        parts[name] = {"p50": quantile(values, 0.5), "p95": quantile(values, 0.95), "max": values[-1]}
    return {"trials": len(rows), **parts}


def show(result: Json) -> None:
    """The table on stderr, the JSON on stdout."""
    table = Table(title="A node is cut off under a training, seconds", title_justify="left")
    for column in ("", "part", "p50", "p95", "max", "goal"):
        table.add_column(column, justify="left" if column in ("", "part") else "right")
    for way in ("gangline", "kubernetes"):
        for part, row in ((part, row) for part, row in result[way].items() if part != "trials"):
            goal = f"{GOALS[part]:g}" if way == "gangline" and part in GOALS else ""
            table.add_row(f"{way} ×{result[way]['trials']}", part, *(f"{row[key]:.2f}" for key in row), goal)
    Console(stderr=True, highlight=False).print(table)
    sys.stdout.write(json.dumps(result) + "\n")


def say(text: Any) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hotswap_real", description=__doc__)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument(
        "--kubernetes", type=int, default=10, help="gangs without Gangline under which one node is cut off"
    )
    parser.add_argument(
        "--lease", type=int, default=40, help="seconds that a node's Lease lasts; 40 is Kubernetes' default"
    )
    parser.add_argument("--torch", action="store_true", help="with PyTorch")
    chosen = parser.parse_args(arguments)
    started = time.monotonic()
    try:
        with stack.ended_by_signals():
            ours = with_gangline(chosen.trials, chosen.lease, torch=chosen.torch) if chosen.trials else []
            theirs = without(chosen.kubernetes, chosen.lease, torch=chosen.torch) if chosen.kubernetes else []
    except (FieldError, DevClusterError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    rows = [asdict(row) for row in ours]
    result = {"gangline": summary(rows), "kubernetes": summary(theirs), "goals": GOALS, "lease_seconds": chosen.lease}
    result |= {"backend": "torch" if chosen.torch else "plain", "all": rows}
    show(rounded(result) | {"wall_seconds": round(time.monotonic() - started, 1)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
