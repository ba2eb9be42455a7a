"""The environment of a run: a control plane with the load's queues, and the measured processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from bench import objects
from bench.parameters import FILE, Load
from bench.usage import Usage, usage
from gangline.api.read import conditions
from gangline.api.schema import crd_install
from gangline.devcluster.components import Component, ControlPlaneOptions
from gangline.devcluster.local import LocalControlPlane
from gangline.devcluster.nodes import EqualNodes, create_pools
from gangline.devcluster.processes.process import ProcessId
from gangline.kube import config, field_tracking, ownership
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import AlreadyExists, ApiError
from gangline.kube.resources import Json

ROOT = Path(__file__).parents[1]
#: Unused in Kueue's benchmark: only etcd and the API server run, so that nothing else takes their CPU.
SIMULATION: tuple[Component, ...] = ("kwok", "kube-scheduler", "kube-controller-manager")
READY = 60.0


class BenchError(Exception):
    """The run cannot continue; the message says why."""


@dataclass
class Process:
    """A child whose usage is measured while it lives."""

    name: str
    command: Sequence[str]
    log: Path
    ready_file: Path | None = None
    child: subprocess.Popen[bytes] | None = None

    def start(self) -> Process:
        """Returns when its ready file is there. Raises BenchError."""
        if self.ready_file is not None:
            self.ready_file.unlink(missing_ok=True)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(self.command, stdout=log, stderr=log, cwd=ROOT, env=environment)
        deadline = time.monotonic() + READY
        while self.ready_file is not None and not self.ready_file.exists():
            if self.child.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"{self.name} is not ready:\n{self.tail()}")
            time.sleep(0.05)
        return self

    @property
    def pid(self) -> int:
        assert self.child is not None
        return self.child.pid

    def alive(self) -> bool:
        return self.child is not None and self.child.poll() is None

    def wait(self) -> int:
        assert self.child is not None
        return self.child.wait()

    def stop(self) -> None:
        if self.child is not None and self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(20)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()

    def kill(self) -> None:
        """kill -9. Returns when the process is gone."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()

    def tail(self, lines: int = 25) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@dataclass
class Stack:
    """As a context manager: a fresh control plane with this load's objects, fully removed afterwards.

    This also holds for a benchmark that is interrupted, if its `main` is within `ended_by_signals`. `simulate` keeps scheduler,
    controllers and kwok, and creates nodes that run pods.
    """

    load: Load
    simulate: bool = False
    #: the API server tracks the fields of Workloads, as it does without Gangline
    track_fields: bool = False
    #: where the operator records facts and decisions; None = nowhere
    audit: Path | None = None
    parameters: Path = FILE
    #: Kueue's configuration file, for operator and webhooks
    configuration: Path | None = None
    #: besides those of Kueue and Gangline
    crds: Sequence[Json] = ()
    #: the operator's login; the control plane's own unless it is changed
    kubeconfig: Path = field(init=False)
    processes: dict[str, Process] = field(default_factory=dict[str, Process])

    def __post_init__(self) -> None:
        self._plane = LocalControlPlane(ControlPlaneOptions())
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gangline-bench-")))
            stack.enter_context(self._plane)
            if not self.simulate:
                for component in SIMULATION:
                    self._plane.kill(component)
            self.kubeconfig = self._plane.kubeconfig
            asyncio.run(self._prepare())
            stack.callback(self._stop_processes)
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    def _stop_processes(self) -> None:
        for process in reversed(self.processes.values()):
            process.stop()

    # --- what is measured ---

    def operator(self, profile: Path | None = None) -> Process:
        """The operator as it is installed; with `profile`, its stacks are sampled into that file."""
        ready = self.directory / "operator.ready"
        arguments = ["admin", "operator", "--kubeconfig", str(self.kubeconfig), "--ready-file", str(ready)]
        arguments += ["--history", str(self.directory / "history.db")]
        arguments += ["--audit", str(self.audit)] if self.audit is not None else []
        arguments += ["--track-fields"] if self.track_fields else []
        return self._start("operator", [*_runner(profile), *arguments, *self._configured()], ready)

    def null_controller(self) -> Process:
        ready = self.directory / "floor.ready"
        arguments = ["-m", "bench.floor", "--kubeconfig", str(self._plane.kubeconfig), "--ready-file", str(ready)]
        return self._start("operator", arguments, ready)

    def kueue(self, binary: Path, *arguments: str) -> Process:
        """Returns once it has observed all queues. Raises BenchError."""
        command = [str(binary), "--kubeconfig", str(self._plane.kubeconfig), *arguments]
        process = Process("operator", command, self._log("operator"))
        self.processes["operator"] = process
        try:
            process.start()
            asyncio.run(self._queues_taken_up(process))
        except (OSError, BenchError) as error:
            raise BenchError(f"{binary}: {error}\n{process.tail()}") from error
        return process

    def webhooks(self, profile: Path | None = None) -> Process:
        """The webhooks as users start them; `profile` as for the operator."""
        ready = self.directory / "webhooks.ready"
        arguments = [*_runner(profile), "admin", "webhooks", "--kubeconfig", str(self._plane.kubeconfig)]
        where = ["--mode", "url", "--listen", "127.0.0.1:0", "--ready-file", str(ready)]
        where += ["--track-fields"] if self.track_fields else []
        return self._start("webhooks", [*arguments, *where, *self._configured()], ready)

    def _configured(self) -> list[str]:
        return ["--config", str(self.configuration)] if self.configuration is not None else []

    def run_load(self, driver: str) -> Json:
        """The whole load; returns its results. Raises BenchError where the load process fails."""
        out = self.directory / "load.json"
        arguments = ["-m", "bench.load", "--kubeconfig", str(self._plane.kubeconfig), "--out", str(out)]
        what = ["--load", self.load.name, "--size", self.load.size, "--driver", driver]
        process = self._start("load", [*arguments, *what, "--parameters", str(self.parameters)], None)
        while process.alive():
            for other in self.processes.values():
                if not other.alive() and other is not process and process.alive():
                    raise BenchError(f"{other.name} ended during the run:\n{other.tail()}")
            time.sleep(0.1)
        if process.wait() != 0 or not out.exists():
            raise BenchError(f"the load process failed:\n{process.tail()}")
        return json.loads(out.read_text())

    def _start(self, name: str, arguments: Sequence[str], ready: Path | None) -> Process:
        process = Process(name, [sys.executable, *arguments], self._log(name), ready)
        self.processes[name] = process
        return process.start()

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    async def _queues_taken_up(self, process: Process) -> None:
        async with ApiClient(config.load(self._plane.kubeconfig)) as client:

            async def active() -> bool:
                if not process.alive():
                    raise BenchError("it ended")
                return all(_is_true(queue, "Active") for queue in (await client.list(kube.CLUSTER_QUEUES)).items)

            await until(active, "its ClusterQueues are not active")

    def usage(self) -> dict[str, Usage]:
        """The usage of every running process."""
        pids = {name: process.pid for name, process in self.processes.items() if process.alive()}
        components: list[Component] = ["etcd", "kube-apiserver", *(reversed(SIMULATION) if self.simulate else ())]
        for component in components:
            pids[component] = pid_of(self._plane, component)
        return {name: usage(pid) for name, pid in pids.items()}

    def api_metrics(self) -> str:
        async def fetch() -> bytes:
            async with ApiClient(config.load(self._plane.kubeconfig)) as client:
                return await client.raw("/metrics")

        return asyncio.run(fetch()).decode()

    def operator_metrics(self) -> str:
        operator = self.processes["operator"]
        assert operator.ready_file is not None
        port = json.loads(operator.ready_file.read_text())["port"]
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                return answer.read().decode()
        except OSError as error:
            raise BenchError(f"the operator does not answer ({error}):\n{operator.tail()}") from error

    def create(self, bodies: Iterable[Json]) -> None:
        """Create these objects, a few at a time."""
        asyncio.run(self._create(bodies))

    def restart_apiserver(self, *, graceful: bool, down: float) -> None:
        """See LocalControlPlane."""
        self._plane.restart_apiserver(graceful=graceful, down=down)

    # --- before the run ---

    async def _prepare(self) -> None:
        async with ApiClient(config.load(self._plane.kubeconfig)) as client:
            for crd in (*crd_install.crds(), *self.crds):
                await client.create(kube.CUSTOM_RESOURCE_DEFINITIONS, None, crd)
            await until(lambda: _served(client), "the CRDs are not served")
            await _create_all(client, objects.setup(self.load))
            if not self.track_fields:  # in the floor's run as in the operator's
                _, queue = self.load.queues[0]
                probe = objects.workload(self.load.classes[0], queue, 0)
                probe["metadata"]["name"] = "probe"
                await end_field_tracking(client, probe)
            if self.load.nodes is None:
                return
            if self.simulate:
                count = self.load.nodes.racks * self.load.nodes.per_rack
                await create_pools(client, [EqualNodes("bench", count, {"cpu": self.load.nodes.cpu})])
                return
            await _create_all(client, objects.nodes(self.load.nodes))
            await untaint(client)

    async def _create(self, bodies: Iterable[Json]) -> None:
        async with ApiClient(config.load(self._plane.kubeconfig)) as client:
            await _create_all(client, bodies)


def pid_of(plane: LocalControlPlane, component: Component) -> int:
    """Raises BenchError if it is not running."""
    process = ProcessId.read(plane.directory / f"{component}.pid")
    if process is None:
        raise BenchError(f"{component} is not running")
    return process.pid


def _runner(profile: Path | None) -> list[str]:
    """Python's arguments that run `gangline`."""
    return ["-m", "bench.sampler", str(profile), "--"] if profile else ["-m", "gangline.console.cli"]


async def until(ready: Callable[[], Awaitable[bool]], trouble: str) -> None:
    """Ask until the answer is yes. Raises BenchError when that takes too long."""
    for _ in range(int(READY * 10)):
        with contextlib.suppress(ApiError):
            if await ready():
                return
        await asyncio.sleep(0.1)
    raise BenchError(f"{trouble} after {READY:g} s")


async def _served(client: ApiClient) -> bool:
    """The API server serves every CRD, and has opened its storage."""
    if not all(_is_true(crd, "Established") for crd in (await client.list(kube.CUSTOM_RESOURCE_DEFINITIONS)).items):
        return False
    for resource in (kube.CLUSTER_QUEUES, kube.LOCAL_QUEUES, kube.WORKLOADS, kube.TOPOLOGIES):
        await client.list(resource)
    return True


async def end_field_tracking(client: ApiClient, probe: Json) -> None:
    """Install the policy about fields, and wait until it is in force and no longer delays the creation of Workloads.

    `probe`: a Workload that is created and deleted meanwhile.
    """

    async def takes_untracked() -> bool:
        meta = probe["metadata"]
        made = await client.create(kube.WORKLOADS, meta["namespace"], probe)
        await client.delete(kube.WORKLOADS, meta["namespace"], meta["name"])
        return "managedFields" not in made["metadata"]

    await field_tracking.end(client, ownership.OPERATOR, after=0.0)
    await until(takes_untracked, "Workloads can't be created untracked")


def _is_true(obj: Json, condition: str) -> bool:
    return conditions.is_true(obj.get("status", {}).get("conditions"), condition)


async def _create_all(client: ApiClient, bodies: Iterable[Json], at_once: int = 24) -> None:
    """In order of kinds; those of one kind a few at a time."""

    async def one(body: Json) -> None:
        resource = kube.BY_KIND[body["kind"]]
        namespace = body["metadata"].get("namespace") if resource.namespaced else None
        async with gate:
            with contextlib.suppress(AlreadyExists):
                await client.create(resource, namespace, body)

    gate = asyncio.Semaphore(at_once)
    by_kind: dict[str, list[Json]] = {}
    for body in bodies:
        by_kind.setdefault(body["kind"], []).append(body)
    for same in by_kind.values():
        await asyncio.gather(*map(one, same))


async def untaint(client: ApiClient) -> None:
    """New nodes are tainted until a node controller has processed them; there is none here."""
    for node in (await client.list(kube.NODES)).items:
        await client.patch(kube.NODES, None, node["metadata"]["name"], {"spec": {"taints": None}})


@contextlib.contextmanager
def machine() -> Iterator[Json]:
    """Adds the machine's state meanwhile: how busy all cores were, and the load averages."""
    state: Json = {"cores": os.cpu_count(), "load_average_before": os.getloadavg()[0]}
    busy, whole = _cpu_times()
    yield state
    busy_after, whole_after = _cpu_times()
    state["load_average_after"] = os.getloadavg()[0]
    state["busy_cores"] = (os.cpu_count() or 1) * (busy_after - busy) / max(1, whole_after - whole)


def _cpu_times() -> tuple[int, int]:
    """(busy, all) ticks of all cores since boot."""
    times = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(times) - times[3] - times[4], sum(times)
