"""How fast plain pods in groups are admitted, beside what the API server takes to create and ungate them.

    python -m bench.pods --pods 5000 --group 8

The floor creates the same pods and removes their gates, and decides nothing. JSON on stdout; exit status 1 where not every pod
was ungated in time. Pods are created as the webhook leaves them: the webhook itself is not measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.command import carried_out
from bench.stack import SIMULATION, BenchError, Process, end_field_tracking, pid_of
from bench.usage import requests, usage
from gangline.api import admission, names
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.local import LocalControlPlane
from gangline.install.kinds import install_kinds
from gangline.kube import config
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import AlreadyExists
from gangline.kube.reflector import Event, Reflector, Upsert
from gangline.kube.resources import Json, Resource

#: as many concurrent writes as the operator at most
CONCURRENCY: Final = 24
NAMESPACE: Final = "default"
#: kinds of requests made less often are left out of the report
MENTIONED: Final = 20
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts")
CONFIGURATION: Final = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": ["batch/job", "pod"]},
}


def pods(count: int, size: int) -> list[Json]:
    """`count` pods in groups of `size`."""
    return [_pod(i // size, i % size, size) for i in range(count)]


def _pod(group: int, index: int, size: int) -> Json:
    labels = {names.QUEUE_NAME: "lq", names.POD_GROUP: f"g{group}"}
    meta = {
        "name": f"g{group}-{index}",
        "namespace": NAMESPACE,
        "labels": labels,
        "annotations": {names.POD_GROUP_TOTAL: str(size)},
    }
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": [container], "restartPolicy": "Never", "automountServiceAccountToken": False}
    pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    return admission.default(pod, None, admission.AdmissionFacts()).obj


def objects(count: int, *resources: str) -> list[tuple[Resource, Json]]:
    """A LocalQueue `lq`, and what it needs: quota for `count` of each of these resources."""
    head = {"apiVersion": names.V1BETA2}
    quota = {"name": "all", "resources": [{"name": each, "nominalQuota": count} for each in resources]}
    queue = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": [*resources], "flavors": [quota]}],
    }
    local = {"name": "lq", "namespace": NAMESPACE}
    return [
        (kube.RESOURCE_FLAVORS, {**head, "kind": "ResourceFlavor", "metadata": {"name": "all"}}),
        (kube.CLUSTER_QUEUES, {**head, "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": queue}),
        (kube.LOCAL_QUEUES, {**head, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": "cq"}}),
    ]


def operator_command(kubeconfig: Path, directory: Path, ready: Path) -> list[str]:
    """The command of an operator that manages plain pods, whose configuration is put into this folder."""
    file = directory / "config.json"
    file.write_text(json.dumps(CONFIGURATION))
    command = [sys.executable, "-m", "gangline.console.cli", "admin", "operator", "--kubeconfig", str(kubeconfig)]
    return [
        *command,
        "--ready-file",
        str(ready),
        "--config",
        str(file),
        "--listen",
        "127.0.0.1:0",
        "--no-leader-election",
    ]


def _probe() -> Json:
    spec = {"podSets": [{"name": "main", "count": 1, "template": {"spec": _pod(0, 0, 1)["spec"]}}]}
    meta = {"name": "probe", "namespace": NAMESPACE}
    return {"apiVersion": names.V1BETA2, "kind": "Workload", "metadata": meta, "spec": spec}


async def create_account(client: ApiClient) -> None:
    """The account of all pods: the controller that makes it is stopped."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    with contextlib.suppress(AlreadyExists):
        await client.create(SERVICE_ACCOUNTS, NAMESPACE, account)


async def _each(items: Iterable[Json], work: Callable[[Json], Awaitable[object]]) -> None:
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))


class _Watch:
    """Which pods have lost their gates."""

    def __init__(self, client: ApiClient, count: int) -> None:
        self._left = count
        self._seen: set[str] = set()
        self.done = asyncio.Event()
        self.reflector = Reflector(client, kube.PODS)

    def take(self, event: Event) -> None:
        if isinstance(event, Upsert) and not event.obj["spec"].get("schedulingGates"):
            self._seen.add(event.obj["metadata"]["uid"])
            if len(self._seen) >= self._left:
                self.done.set()

    @property
    def ungated(self) -> int:
        return len(self._seen)


async def _timed(client: ApiClient, made: Sequence[Json], floor: bool, within: float) -> tuple[float, int]:
    """Seconds until all these pods are ungated, and how many were."""
    watch = _Watch(client, len(made))
    following = asyncio.ensure_future(watch.reflector.run(watch.take))
    await watch.reflector.synced.wait()

    async def create(pod: Json) -> None:
        stored = await client.create(kube.PODS, NAMESPACE, pod)
        if floor:
            body = {
                "metadata": {"resourceVersion": stored["metadata"]["resourceVersion"]},
                "spec": {"schedulingGates": None},
            }
            await client.patch(kube.PODS, NAMESPACE, pod["metadata"]["name"], body)

    start = time.monotonic()
    await _each(made, create)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within):
            await watch.done.wait()
    seconds = time.monotonic() - start
    following.cancel()
    return seconds, watch.ungated


async def _remove(client: ApiClient, made: Sequence[Json]) -> None:
    async def remove(pod: Json) -> None:
        name = pod["metadata"]["name"]
        await client.patch(kube.PODS, NAMESPACE, name, {"metadata": {"finalizers": None}})
        await client.delete(kube.PODS, NAMESPACE, name, grace_seconds=0)

    await _each(made, remove)


class _Cost:
    """What a half of the benchmark cost: CPU seconds of every process, and the API server's requests by verb and resource."""

    def __init__(self, client: ApiClient, pids: Mapping[str, int]) -> None:
        self._client = client
        self._pids = pids

    async def begin(self) -> None:
        self._used = {name: usage(pid) for name, pid in self._pids.items()}
        self._requests = await self._counted()

    async def end(self) -> Json:
        cpu = {name: round(usage(pid).since(self._used[name]).cpu_seconds, 2) for name, pid in self._pids.items()}
        counted = await self._counted() - self._requests
        return {"cpu_seconds": cpu, "requests": {key: n for key, n in counted.most_common() if n >= MENTIONED}}

    async def _counted(self) -> Counter[str]:
        return requests((await self._client.raw("/metrics")).decode(), "apiserver_request_total")


async def _measured(plane: LocalControlPlane, directory: Path, options: argparse.Namespace) -> Json:
    made = pods(options.pods - options.pods % options.group, options.group)
    kubeconfig = plane.kubeconfig
    servers = {
        "etcd": pid_of(plane, "etcd"),
        "kube-apiserver": pid_of(plane, "kube-apiserver"),
        "benchmark": os.getpid(),
    }
    async with ApiClient(config.load(kubeconfig)) as client:
        await install_kinds(client)
        for resource, obj in objects(len(made), "cpu"):
            await client.create(resource, obj["metadata"].get("namespace"), obj)
        await create_account(client)
        await end_field_tracking(client, _probe())  # as where it has been installed for a while
        cost = _Cost(client, servers)
        await cost.begin()
        floor, _ = await _timed(client, made, True, options.within)
        floor_cost = await cost.end()
        await _remove(client, made)
        ready = directory / "ready"
        command = operator_command(kubeconfig, directory, ready)
        operator = Process("operator", command, directory / "operator.log", ready).start()
        try:
            cost = _Cost(client, servers | {"operator": operator.pid})
            await cost.begin()
            seconds, ungated = await _timed(client, made, False, options.within)
            own_cost = await cost.end()
            peak = usage(operator.pid).peak_mb
        finally:
            operator.stop()
    return {
        "pods": len(made),
        "group": options.group,
        "ungated": ungated,
        "seconds": round(seconds, 2),
        "floor_seconds": round(floor, 2),
        "ratio": round(seconds / floor, 2),
        "pods_per_second": round(ungated / seconds, 1),
        "operator_peak_mb": round(peak, 1),
        "cost": own_cost,
        "floor_cost": floor_cost,
    }


def _run(options: argparse.Namespace) -> int:
    if options.group < 1 or options.pods < options.group:
        raise BenchError("--group must be at least 1, and --pods at least one group")
    with (
        tempfile.TemporaryDirectory(prefix="gangline-bench-") as directory,
        LocalControlPlane(ControlPlaneOptions()) as plane,
    ):
        for component in SIMULATION:
            plane.kill(component)
        result = asyncio.run(_measured(plane, Path(directory), options))
    print(json.dumps(result, indent=2))
    return 0 if result["ungated"] == result["pods"] else 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Benchmark of plain pods in groups.")
    parser.add_argument("--pods", type=int, default=5000, help="how many pods (default: %(default)s)")
    parser.add_argument("--group", type=int, default=8, help="pods of a group (default: %(default)s)")
    parser.add_argument("--within", type=float, default=600.0, help="seconds to wait (default: %(default)s)")
    return carried_out(lambda: _run(parser.parse_args(arguments)))


if __name__ == "__main__":
    raise SystemExit(main())
