"""A whole Gangline on a control plane of its own: what the end-to-end tests drive.

Operators are real processes, so that they can be killed like real ones; they are forked from a server that has everything
imported already, since dozens are started.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from bench.official import OfficialClient, ReadError
from prometheus_client.parser import text_string_to_metric_families
from tests.controlplane import PATIENCE

from gangline.control.answers.api import api_service
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.config import load
from gangline.kube.errors import ApiError, NotFound, Unavailable, from_status
from gangline.kube.resources import Resource, controller_of

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
FORKS = multiprocessing.get_context("forkserver")
#: seconds between two questions of a wait, at first and after a few seconds: each takes CPU of the API server from other tests
QUICKLY, SLOWLY = 0.1, 0.25
#: the kinds whose objects the message of a test shows that waited in vain
_SCENE = (
    *(kube.JOB_SETS, kube.GPU_JOBS, kube.JOBS, kube.WORKLOADS, kube.PODS, kube.EVENTS, kube.NODES),
    kube.MULTI_KUEUE_CLUSTERS,
)
FORKS.set_forkserver_preload(["gangline.control.process.operator_process"])


#: what a forked process replaces before it starts: "module:attribute" -> value; how tests give it other times
Replaced = dict[str, Any]


def replace_all(replaced: Replaced) -> None:
    for where, value in replaced.items():
        module, _, attribute = where.partition(":")
        setattr(importlib.import_module(module), attribute, value)


def redirect_output(log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def _run_operator(
    kubeconfig: str, identity: str, ready: str, log: str, fault: str, arguments: Json, replaced: Replaced
) -> None:
    """The body of an operator process."""
    import logging

    redirect_output(log)
    replace_all(replaced)
    os.environ.pop("GANGLINE_FAULT", None)
    if fault:
        os.environ["GANGLINE_FAULT"] = fault
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s", force=True
    )
    logging.getLogger("kopf").setLevel(logging.WARNING)
    from gangline.control.process.operator_process import OperatorOptions, serve

    options = OperatorOptions(kubeconfig=Path(kubeconfig), identity=identity, ready_file=Path(ready), **arguments)
    os._exit(asyncio.run(serve(options)))


@dataclass
class OperatorProcess:
    """One operator under test."""

    kubeconfig: Path
    directory: Path
    identity: str = "operator"
    fault: str = ""
    arguments: Json = field(default_factory=lambda: {"leader_election": False})
    replaced: Replaced = field(default_factory=dict)
    process: Any = None

    @property
    def log(self) -> Path:
        return self.directory / f"{self.identity}.log"

    @property
    def ready_file(self) -> Path:
        return self.directory / f"{self.identity}.ready"

    def start(self) -> OperatorProcess:
        self.ready_file.unlink(missing_ok=True)
        arguments = (
            str(self.kubeconfig),
            self.identity,
            str(self.ready_file),
            str(self.log),
            self.fault,
            self.arguments,
            self.replaced,
        )
        self.process = FORKS.Process(target=_run_operator, args=arguments, daemon=True)
        self.process.start()
        return self

    def wait_ready(self, seconds: float = 90.0) -> OperatorProcess:
        wait_until(lambda: self.ready_file.exists() or not self.process.is_alive(), seconds, "the operator is ready")
        if not self.process.is_alive():
            raise AssertionError(f"the operator ended with {self.process.exitcode}:\n{self.tail()}")
        return self

    async def samples(self, name: str) -> list[Any]:
        """The samples of a metric."""
        port = json.loads(self.ready_file.read_text())["port"]
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            families = text_string_to_metric_families(await answer.text())
            return [sample for family in families for sample in family.samples if sample.name == name]

    def kill(self) -> None:
        """As `kill -9`."""
        if self.process is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.join(10)

    def stop(self) -> int:
        """As Kubernetes ends a pod. Returns the exit status."""
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGTERM)
            self.process.join(20)
        return self.process.exitcode

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text().splitlines()[-lines:]) if self.log.exists() else "(no log)"


@dataclass
class WebhookProcess:
    kubeconfig: Path
    directory: Path
    process: subprocess.Popen[bytes] | None = None
    arguments: tuple[str, ...] = ()

    def start(self) -> WebhookProcess:
        ready = self.directory / "webhooks.ready"
        ready.unlink(missing_ok=True)
        with (self.directory / "webhooks.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "gangline.console.cli", "admin", "webhooks"),
                    *("--kubeconfig", str(self.kubeconfig), "--ready-file", str(ready)),
                    *("--mode", "url", "--listen", "127.0.0.1:0", *self.arguments),
                ],
                stdout=log,
                stderr=log,
            )
        wait_until(lambda: ready.exists() or self.process.poll() is not None, 90, "the webhooks are ready")
        if self.process.poll() is not None:
            raise AssertionError((self.directory / "webhooks.log").read_text()[-3000:])
        return self

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(20)
            self.process = None


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@dataclass
class Api:
    """The cluster as a test sees it: written with our client, read with the official one."""

    client: ApiClient
    official: OfficialClient

    async def apply(self, *objects: Json) -> None:
        for obj in objects:
            resource = kube.BY_KIND[obj["kind"]]
            group, _, version = obj["apiVersion"].rpartition("/")
            resource = Resource(group, version, resource.plural, resource.namespaced, resource.kind)
            meta = obj["metadata"]
            namespace = meta.get("namespace", "default") if resource.namespaced else None
            await self.client.patch(
                resource, namespace, meta["name"], obj, kind="apply", field_manager="test", force=True
            )

    async def create(self, *objects: Json) -> list[Json]:
        created: list[Json] = []
        for obj in objects:
            resource = kube.BY_KIND[obj["kind"]]
            namespace = obj["metadata"].get("namespace", "default") if resource.namespaced else None
            created.append(await self.client.create(resource, namespace, obj))
        return created

    async def get(self, resource: Resource, name: str, namespace: str = "default") -> Json:
        with as_api_error():
            return await self.official.get(resource, namespace if resource.namespaced else None, name)

    async def all(self, resource: Resource, namespace: str | None = None, selector: str = "") -> list[Json]:
        with as_api_error():
            return (await self.official.list(resource, namespace, selector)).items

    async def workload_of(self, job: str, namespace: str = "default") -> Json | None:
        for workload in await self.all(kube.WORKLOADS, namespace):
            if any(ref["name"] == job for ref in workload["metadata"].get("ownerReferences", ())):
                return workload
        return None

    async def until(
        self,
        condition: Callable[[], Awaitable[Any]],
        what: str,
        seconds: float = 60.0,
        period: float | None = None,
        *,
        namespace: str = "default",
    ) -> Any:
        """Ask again until the answer is true, for `PATIENCE` times so many seconds; errors of the API server are waited out.

        `period`: seconds between two questions. Without it they are QUICKLY apart at first, and SLOWLY in a long wait.
        """
        seconds *= PATIENCE
        began = time.monotonic()
        trouble: Any = None
        while (waited := time.monotonic() - began) < seconds:
            try:
                trouble = await condition()
                if trouble:
                    return trouble
            except ApiError as error:
                trouble = error
            await asyncio.sleep(period or min(SLOWLY, max(QUICKLY, waited / 10)))
        raise AssertionError(f"not within {seconds:g} s: {what} (last: {trouble!r})\n{await self.scene(namespace)}")

    async def scene(self, namespace: str = "default") -> str:
        """What runs and what waits, for the message of a test that waited in vain."""
        lines = await self._in_the_way(namespace)
        for resource in _SCENE:
            try:
                found = await self.all(resource, namespace if resource.namespaced else None)
            except ApiError as error:
                lines.append(f"{resource.plural}: {error}")
                continue
            for obj in found:
                if resource is kube.NODES and not _remarkable(obj):
                    continue
                fields = {k: v for k, v in obj.items() if k not in ("apiVersion", "kind", "metadata")}
                meta = {k: v for k, v in obj["metadata"].items() if k not in ("managedFields", "ownerReferences")}
                lines.append(
                    f"{resource.plural} {json.dumps(meta, sort_keys=True)} {json.dumps(fields, sort_keys=True)}"
                )
        return "\n".join(lines)

    async def _in_the_way(self, namespace: str) -> list[str]:
        """What keeps a namespace from being deleted, and groups of the API that nobody serves."""
        try:
            services = await self.all(api_service.API_SERVICES)
            status = (await self.get(kube.NAMESPACES, namespace))["status"]
        except ApiError as error:
            return [f"namespace {namespace}: {error}"]
        lines = [] if status["phase"] == "Active" else [f"namespace {namespace}: {json.dumps(status)}"]
        dead = [each for each in services if not condition(each, "Available")]
        return lines + [f"apiservice {each['metadata']['name']}: {json.dumps(each['status'])}" for each in dead]

    async def finished(self, *jobs: str, namespace: str = "default", seconds: float = 60.0) -> None:
        """All these batch Jobs are complete."""

        async def done() -> bool:
            found = {job["metadata"]["name"]: job for job in await self.all(kube.JOBS, namespace)}
            return all(condition(found[name], "Complete") for name in jobs)

        await self.until(done, f"complete: {', '.join(jobs)}", seconds)

    async def delete_pods(self, namespace: str = "default") -> None:
        """All of them, at once: those on dead nodes wait for a node that will not answer."""
        for pod in await self.all(kube.PODS, namespace):
            with contextlib.suppress(NotFound):
                await self.client.delete(kube.PODS, namespace, pod["metadata"]["name"], grace_seconds=0)

    async def withdraw_answers(self) -> None:
        """As an operator does at its end, unless it is killed: no namespace can be deleted while APIServices lead nowhere."""
        for service in await self.all(api_service.API_SERVICES, selector="app.kubernetes.io/part-of=gangline"):
            with contextlib.suppress(NotFound):
                await self.client.delete(api_service.API_SERVICES, None, service["metadata"]["name"])

    async def wipe(self, namespace: str = "default") -> None:
        """Remove every job, queue object and pod; finalizers included, whatever the operator is doing."""
        for resource in (kube.JOBS, kube.GPU_JOBS):
            for obj in await self.all(resource, namespace):
                with contextlib.suppress(NotFound):
                    await self.client.delete(resource, namespace, obj["metadata"]["name"], propagation="Background")
        for resource in (kube.WORKLOADS, kube.LOCAL_QUEUES, kube.CLUSTER_QUEUES, kube.COHORTS, kube.RESOURCE_FLAVORS):
            scope = namespace if resource.namespaced else None
            for obj in await self.all(resource, scope):
                name = obj["metadata"]["name"]
                with contextlib.suppress(NotFound):
                    if obj["metadata"].get("finalizers"):
                        await self.client.patch(resource, scope, name, {"metadata": {"finalizers": None}})
                    await self.client.delete(resource, scope, name)

        async def empty() -> bool:
            pods = await self.all(kube.PODS, namespace)
            for pod in pods:
                if not controller_of(pod):  # a failed test's own: nothing else deletes it
                    with contextlib.suppress(NotFound):
                        await self.client.delete(kube.PODS, namespace, pod["metadata"]["name"], grace_seconds=0)
            left = [*(await self.all(kube.WORKLOADS, namespace)), *pods]
            return not left and not await self.all(kube.JOBS, namespace)

        await self.until(empty, f"nothing is left in namespace {namespace}", 60, namespace=namespace)


def _remarkable(node: Json) -> bool:
    """Pods do not simply run there."""
    return bool(node["spec"].get("taints") or node["spec"].get("unschedulable") or not condition(node, "Ready"))


@contextlib.asynccontextmanager
async def connect(kubeconfig: Path) -> AsyncIterator[Api]:
    async with ApiClient(load(kubeconfig)) as client:
        with contextlib.closing(OfficialClient(kubeconfig)) as official:
            yield Api(client, official)


@contextlib.contextmanager
def as_api_error() -> Iterator[None]:
    """Failures of the official client as the errors that tests expect of writes."""
    try:
        yield
    except ReadError as error:
        if not error.status:
            raise Unavailable(0, error.reason, error.message) from error
        raise from_status({"code": error.status, "reason": error.reason, "message": error.message}) from error


def condition(obj: Json, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in obj.get("status", {}).get("conditions") or ())


def condition_row(obj: Json, kind: str) -> Json:
    return next((c for c in obj.get("status", {}).get("conditions") or () if c["type"] == kind), {})


# --- manifests --------------------------------------------------------------------------------------------------------


def flavor(name: str = "gpu", labels: dict[str, str] | None = None) -> Json:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": labels or {}},
    }


def cluster_queue(name: str, gpus: int, *, cohort: str = "", flavors: Iterable[str] = ("gpu",), **spec: Any) -> Json:
    quotas = [{"name": flavor, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": gpus}]} for flavor in flavors]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": quotas}],
            **({"cohortName": cohort} if cohort else {}),
            **spec,
        },
    }


def local_queue(name: str, queue: str, namespace: str = "default") -> Json:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": queue},
    }


def priority_class(name: str, value: int) -> Json:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def queue_policy(name: str, *queues: str, **spec: Any) -> Json:
    return {
        "apiVersion": "gangline.io/v1alpha1",
        "kind": "QueuePolicy",
        "metadata": {"name": name},
        "spec": {"clusterQueues": {"names": list(queues)}, **spec},
    }


def job(
    name: str,
    queue: str,
    *,
    pods: int = 1,
    gpus: int = 1,
    runtime: str = "1s",
    priority: str = "",
    as_annotation: bool = False,
    namespace: str = "default",
    resource: str = "nvidia.com/gpu",
) -> Json:
    """A batch Job of `pods` pods with `gpus` each. Suspended, as the webhook would make it."""
    given = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**({} if as_annotation else given), **_priority(priority)},
            "annotations": given if as_annotation else {},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "suspend": bool(queue) and not as_annotation,
            "backoffLimit": 0,
            "template": _template(runtime, resources={"limits": {resource: str(gpus)}}),
        },
    }


def gpu_job(
    name: str, queue: str, *, workers: int = 1, gpus: int = 1, simulated: str = "1s", priority: str = "", **spec: Any
) -> Json:
    """A gang whose pods run for as long as `simulated` says."""
    return {
        "apiVersion": "gangline.io/v1alpha1",
        "kind": "GPUJob",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": queue, **_priority(priority)},
        },
        "spec": {"workers": workers, "gpusPerWorker": gpus, "template": _template(simulated), **spec},
    }


def _priority(name: str) -> dict[str, str]:
    return {"kueue.x-k8s.io/priority-class": name} if name else {}


def _template(runtime: str, **container: Any) -> Json:
    """Of pods that run for so long; "" = until they are asked to end."""
    return {
        "metadata": {"annotations": {"gangline.io/simulated-runtime": runtime} if runtime else {}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "example.com/train", **container}],
        },
    }
