"""How fast gangs get their nodes: plain pods in groups, beside Kubernetes alone, Volcano and KAI.

    python -m bench.gangs --gangs 1000 --size 8
    python -m bench.gangs --volcano PATH --volcano-crds DIR --kai PATH --kai-binder PATH --kai-crds DIR

`gangs` gangs of `size` pods with a GPU each are created on simulated nodes that just hold all of them. Measured is until the last
pod is bound, on a control plane for each contender:

- kubernetes: the pods alone, bound by kube-scheduler. It knows no gangs: a floor for those who use it.
- gangline: its operator ungates groups, kube-scheduler binds them. Pods are created as the webhook leaves them.
- volcano: vc-scheduler, with its own default plugins. PodGroups are created with the pods.
- kai: its scheduler and its binder, with their usual flags. PodGroups are created with the pods.

Paths are those of binaries, and of folders with the CRDs of the same version. One JSON object on stdout; exit status 1 where not
every pod was bound in time.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from bench import report
from bench.command import carried_out
from bench.load import quantile
from bench.pods import CONCURRENCY, NAMESPACE, create_account, objects, operator_command
from bench.stack import BenchError, Process, pid_of, untaint, until
from bench.usage import usage
from gangline.api import admission, names
from gangline.devcluster.components import Component, ControlPlaneOptions
from gangline.devcluster.local import LocalControlPlane
from gangline.devcluster.nodes import EqualNodes, create_pools
from gangline.install.kinds import install_kinds
from gangline.kube import config
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import AlreadyExists
from gangline.kube.reflector import Event, Reflector, Upsert
from gangline.kube.resources import Json, Resource

GPU: Final = "nvidia.com/gpu"
GPUS_OF_A_NODE: Final = 8
#: they would take CPU, and do nothing for the figures: nodes are Ready, and pods need not run
IDLE: Final[tuple[Component, ...]] = ("kwok", "kube-controller-manager")
#: seconds from the start of a contender until the first pod is created
SETTLED: Final = 10.0


@dataclass(frozen=True, slots=True)
class Gangs:
    """What is created: `count` gangs of `size` pods."""

    count: int
    size: int

    @property
    def pods(self) -> int:
        return self.count * self.size

    @property
    def nodes(self) -> int:
        return -(-self.pods // GPUS_OF_A_NODE)


@dataclass(frozen=True, slots=True)
class Contender:
    """Who binds the pods.

    `objects`: what it needs before; `group`: the object of a gang, by its name and size; `pod`: a pod as it wants it; `commands`:
    its processes by name, for a kubeconfig and a folder for its files. `crds`: the folder of its CRDs.
    """

    name: str
    objects: Callable[[Gangs], list[tuple[Resource, Json]]]
    group: Callable[[str, int], tuple[Resource, Json]] | None
    pod: Callable[[Json, str, int], Json]
    commands: Callable[[Path, Path], dict[str, list[str]]]
    crds: Path | None = None


# --- who takes part ---------------------------------------------------------------------------------------------------


def _nothing(_: Gangs) -> list[tuple[Resource, Json]]:
    return []


def kubernetes() -> Contender:
    return Contender("kubernetes", _nothing, None, lambda pod, _group, _size: pod, lambda _kubeconfig, _files: {})


def gangline() -> Contender:
    def pod(pod: Json, group: str, size: int) -> Json:
        pod["metadata"]["labels"] = {names.QUEUE_NAME: "lq", names.POD_GROUP: group}
        pod["metadata"]["annotations"] = {names.POD_GROUP_TOTAL: str(size)}
        return admission.default(pod, None, admission.AdmissionFacts()).obj

    def commands(kubeconfig: Path, files: Path) -> dict[str, list[str]]:
        return {"operator": operator_command(kubeconfig, files, files / "ready")}

    return Contender("gangline", lambda gangs: objects(gangs.pods, "cpu", GPU), None, pod, commands)


def volcano(binary: Path, crds: Path) -> Contender:
    api = "scheduling.volcano.sh"
    queues, groups = Resource(api, "v1beta1", "queues"), Resource(api, "v1beta1", "podgroups")

    def objects(_: Gangs) -> list[tuple[Resource, Json]]:
        queue = {"apiVersion": f"{api}/v1beta1", "kind": "Queue", "metadata": {"name": "default"}}
        return [(queues, {**queue, "spec": {"weight": 1, "reclaimable": True}})]

    def group(name: str, size: int) -> tuple[Resource, Json]:
        meta = {"name": name, "namespace": NAMESPACE}
        spec = {"minMember": size, "queue": "default"}
        return groups, {"apiVersion": f"{api}/v1beta1", "kind": "PodGroup", "metadata": meta, "spec": spec}

    def pod(pod: Json, group: str, _: int) -> Json:
        pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": group}
        pod["spec"]["schedulerName"] = "volcano"
        return pod

    def commands(kubeconfig: Path, _: Path) -> dict[str, list[str]]:
        command = [str(binary), f"--kubeconfig={kubeconfig}", "--leader-elect=false"]
        return {"volcano": [*command, "--plugins-dir=", "--csi-storage=false", "--v=1"]}

    return Contender("volcano", objects, group, pod, commands, crds)


def kai(scheduler: Path, binder: Path, crds: Path) -> Contender:
    api, label = "scheduling.run.ai", "kai.scheduler/queue"
    queues, groups = Resource(api, "v2", "queues", namespaced=False), Resource(api, "v2alpha2", "podgroups")

    def objects(_: Gangs) -> list[tuple[Resource, Json]]:
        unlimited = {each: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for each in ("cpu", "gpu", "memory")}
        head = {"apiVersion": f"{api}/v2", "kind": "Queue"}
        parent = {**head, "metadata": {"name": "all"}, "spec": {"resources": unlimited}}
        leaf = {**head, "metadata": {"name": "gangs"}, "spec": {"parentQueue": "all", "resources": unlimited}}
        return [(queues, parent), (queues, leaf)]

    def group(name: str, size: int) -> tuple[Resource, Json]:
        meta = {"name": name, "namespace": NAMESPACE, "labels": {label: "gangs"}}
        spec = {"minMember": size, "queue": "gangs"}
        return groups, {"apiVersion": f"{api}/v2alpha2", "kind": "PodGroup", "metadata": meta, "spec": spec}

    def pod(pod: Json, group: str, _: int) -> Json:
        pod["metadata"]["annotations"] = {"pod-group-name": group}
        pod["metadata"]["labels"] = {label: "gangs"}
        pod["spec"]["schedulerName"] = "kai-scheduler"
        return pod

    def commands(kubeconfig: Path, _: Path) -> dict[str, list[str]]:
        free = "127.0.0.1:0"
        return {
            "kai-scheduler": [
                str(scheduler),
                f"--kubeconfig={kubeconfig}",
                f"--listen-address={free}",
                "--plugin-server-port=0",
            ],
            "kai-binder": [
                str(binder),
                f"--kubeconfig={kubeconfig}",
                f"--metrics-bind-address={free}",
                f"--health-probe-bind-address={free}",
            ],
        }

    return Contender("kai", objects, group, pod, commands, crds)


# --- what is measured -------------------------------------------------------------------------------------------------


def plain_pod(group: str, index: int) -> Json:
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1"}, "limits": {GPU: "1"}}}
    spec = {"containers": [container], "restartPolicy": "Never", "automountServiceAccountToken": False}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{group}-{index}", "namespace": NAMESPACE},
        "spec": spec,
    }


class Bindings:
    """When each gang had its last pod created, and when its last pod was bound, in seconds of one clock."""

    def __init__(self, gangs: Gangs) -> None:
        self._gangs = gangs
        self._bound: dict[str, set[str]] = {}
        self.created: dict[str, float] = {}
        self.complete: dict[str, float] = {}
        self.done = asyncio.Event()

    def take(self, event: Event) -> None:
        if not isinstance(event, Upsert) or not event.obj["spec"].get("nodeName"):
            return
        name: str = event.obj["metadata"]["name"]
        group = name.rpartition("-")[0]
        bound = self._bound.setdefault(group, set())
        bound.add(name)
        if len(bound) == self._gangs.size and group not in self.complete:
            self.complete[group] = time.monotonic()
            if len(self.complete) == self._gangs.count:
                self.done.set()

    @property
    def bound(self) -> int:
        return sum(len(each) for each in self._bound.values())

    def waits(self) -> list[float]:
        """Seconds from a gang's last pod to its last binding."""
        return sorted(at - self.created[group] for group, at in self.complete.items())


async def _create(client: ApiClient, contender: Contender, gangs: Gangs, bindings: Bindings) -> None:
    """All gangs, a gang after the other, a few at a time."""
    names_left = iter([f"g{number}" for number in range(gangs.count)])

    async def worker() -> None:
        for group in names_left:
            if contender.group is not None:
                resource, body = contender.group(group, gangs.size)
                await client.create(resource, NAMESPACE, body)
            for index in range(gangs.size):
                await client.create(kube.PODS, NAMESPACE, contender.pod(plain_pod(group, index), group, gangs.size))
            bindings.created[group] = time.monotonic()

    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))


async def _prepare(plane: LocalControlPlane, client: ApiClient, contender: Contender, gangs: Gangs) -> None:
    await create_pools(client, [EqualNodes("bench", gangs.nodes, {GPU: GPUS_OF_A_NODE})])
    for component in IDLE:
        plane.kill(component)
    await untaint(client)
    await create_account(client)
    if contender.name == "gangline":
        await install_kinds(client)
    for file in sorted(contender.crds.glob("*.yaml")) if contender.crds is not None else ():
        for crd in yaml.safe_load_all(file.read_text()):
            if crd and crd.get("kind") == "CustomResourceDefinition":
                await client.create(kube.CUSTOM_RESOURCE_DEFINITIONS, None, crd)
    for resource, body in contender.objects(gangs):
        await _created(client, resource, body)


async def _created(client: ApiClient, resource: Resource, body: Json) -> None:
    """Create an object of a kind that may not be served yet. Raises BenchError."""

    async def exists() -> bool:
        with contextlib.suppress(AlreadyExists):
            await client.create(resource, body["metadata"].get("namespace"), body)
        return True

    await until(exists, f"no {body['kind']} can be created")


async def _measured(
    plane: LocalControlPlane, directory: Path, contender: Contender, gangs: Gangs, within: float
) -> Json:
    processes: list[Process] = []
    async with ApiClient(config.load(plane.kubeconfig), user_agent="gangline-bench-load") as client:
        await _prepare(plane, client, contender, gangs)
        try:
            for name, command in contender.commands(plane.kubeconfig, directory).items():
                processes.append(Process(name, command, directory / f"{name}.log").start())
            await asyncio.sleep(SETTLED)
            bindings = Bindings(gangs)
            reflector = Reflector(client, kube.PODS)
            following = asyncio.ensure_future(reflector.run(bindings.take))
            await reflector.synced.wait()
            pids = {name: pid_of(plane, name) for name in ("etcd", "kube-apiserver", "kube-scheduler")}
            pids |= {each.name: each.pid for each in processes} | {"benchmark": os.getpid()}
            used, start = {name: usage(pid) for name, pid in pids.items()}, time.monotonic()
            await _create(client, contender, gangs, bindings)
            creating = time.monotonic() - start
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within - creating):
                    await bindings.done.wait()
            seconds = time.monotonic() - start
            following.cancel()
            if ended := [each for each in processes if not each.alive()]:
                raise BenchError(f"{ended[0].name} ended:\n{ended[0].tail()}")
            cpu = {name: usage(pid).since(used[name]).cpu_seconds for name, pid in pids.items()}
            peak = {each.name: usage(each.pid).peak_mb for each in processes}
        finally:
            for process in processes:
                process.stop()
    waits = bindings.waits()
    return {
        "contender": contender.name,
        "pods": gangs.pods,
        "bound": bindings.bound,
        "whole_gangs": len(waits),
        "seconds": seconds,
        "seconds_to_create": creating,
        "pods_per_second": bindings.bound / seconds,
        "gang_wait_seconds": {"p50": quantile(waits, 0.5), "p95": quantile(waits, 0.95)} if waits else {},
        "cpu_seconds": cpu,
        "peak_mb": peak,
    }


def measured(contender: Contender, gangs: Gangs, within: float) -> Json:
    """The figures of one contender, on a control plane of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="gangline-bench-") as directory,
        LocalControlPlane(ControlPlaneOptions()) as plane,
    ):
        return report.rounded(asyncio.run(_measured(plane, Path(directory), contender, gangs, within)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="How fast gangs get their nodes, beside others.")
    parser.add_argument("--gangs", type=int, default=1000, help="how many (default: %(default)s)")
    parser.add_argument("--size", type=int, default=8, help="pods of a gang (default: %(default)s)")
    parser.add_argument("--within", type=float, default=600.0, help="seconds for each (default: %(default)s)")
    for name, what in (("volcano", "vc-scheduler"), ("kai", "KAI's scheduler"), ("kai-binder", "KAI's binder")):
        parser.add_argument(f"--{name}", type=Path, metavar="PATH", help=f"the binary of {what}")
    for name in ("volcano", "kai"):
        parser.add_argument(f"--{name}-crds", type=Path, metavar="DIR", help="its CRDs")
    options = parser.parse_args(arguments)
    if options.gangs < 1 or options.size < 1:
        parser.error("--gangs and --size must be at least 1")
    if bool(options.volcano) != bool(options.volcano_crds):
        parser.error("--volcano and --volcano-crds belong together")
    if len({*map(bool, (options.kai, options.kai_binder, options.kai_crds))}) > 1:
        parser.error("--kai, --kai-binder and --kai-crds belong together")
    return carried_out(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    contenders = [kubernetes(), gangline()]
    if options.volcano:
        contenders.append(volcano(options.volcano, options.volcano_crds))
    if options.kai:
        contenders.append(kai(options.kai, options.kai_binder, options.kai_crds))
    gangs = Gangs(options.gangs, options.size)
    found = [measured(each, gangs, options.within) for each in contenders]
    print(json.dumps({"gangs": gangs.count, "size": gangs.size, "nodes": gangs.nodes, "contenders": found}, indent=1))
    return 0 if all(each["bound"] == each["pods"] for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
