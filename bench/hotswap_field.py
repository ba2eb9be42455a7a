"""One field of trials: pools, queues and JobSets of the published recipe under names of their own, and the watches."""

from __future__ import annotations

import asyncio
import copy
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from gangline.devcluster.nodes import EqualNodes, create_pools, delete_pool, fail_node, is_ready, recover_node
from gangline.kube.client import ApiClient
from gangline.kube.errors import NotFound
from gangline.kube.reflector import Event, Reflector, ReflectorGroup, Removed, Upsert
from gangline.kube.resources import BY_KIND, JOB_SETS, NODES, PODS, QUEUE_POLICIES, Json, Resource, key_of

EXAMPLE = Path(__file__).parents[1] / "examples" / "gke-hotswap"
ACCELERATOR = "cloud.google.com/gke-tpu-accelerator"
POOL = "cloud.google.com/gke-nodepool"
JOB_SET = "jobset.sigs.k8s.io/jobset-name"
NAMESPACE = "default"
GANG = 8  # pods of a JobSet
#: a trial that takes longer than this has failed, in seconds: twice what Kubernetes takes
PATIENCE = 900.0
#: a recovered node is used again after this long; each failure before doubles that, up to this factor
SOAK = 1.0
LONGEST_SOAK = 16
#: for the operator to see that a node is back, in seconds
MARGIN = 2.0


class FieldError(Exception):
    """A trial did not finish; the message says where it hangs."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Seconds from the node's NotReady until all replacement pods existed, and until all were running."""

    created: float
    running: float
    low_disturbed: bool


@dataclass
class Watched:
    """Nodes, pods and objects of more kinds as watches show them, with the times of arrival."""

    client: ApiClient
    objects: dict[Resource, dict[str, Json]] = field(default_factory=lambda: {NODES: {}, PODS: {}})
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    @asynccontextmanager
    async def of(cls, client: ApiClient, *more: Resource) -> AsyncIterator[Self]:
        watched, group = cls(client), ReflectorGroup()
        watched.objects.update({resource: {} for resource in more})
        for resource in watched.objects:
            group.add(Reflector(client, resource), watched._sink(resource))
        watching = asyncio.ensure_future(group.run())
        try:
            yield watched
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def _sink(self, resource: Resource) -> Callable[[Event], None]:
        def take(event: Event) -> None:
            if isinstance(event, Upsert):
                self.objects[resource][key_of(event.obj)] = event.obj
            elif isinstance(event, Removed):
                self.objects[resource].pop(event.key, None)
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

        return take

    async def when(self, condition: Callable[[], bool], what: str) -> float:
        """time.monotonic() at which the watch first showed it. Raises FieldError after PATIENCE."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    await self._changed.wait()
        except TimeoutError:
            raise FieldError(f"not within {PATIENCE:g} s: {what}") from None
        return time.monotonic()


class Field:
    """As a context manager: `slices` pools of four nodes, with one or both JobSets of the recipe running on them."""

    def __init__(self, watched: Watched, name: str, *, slices: int, recovery: bool = True, low: bool = True) -> None:
        self.name = name
        self._watched = watched
        self._client = watched.client
        self._recovery = recovery
        self._jobs = (["low"] if low else []) + ["high"]
        self._failures = Counter[str]()
        labels = {ACCELERATOR: name, "cloud.google.com/gke-tpu-topology": "4x4"}
        self._pools = [
            EqualNodes(f"{name}-{number}", 4, {"google.com/tpu": 4}, {**labels, POOL: f"{name}-{number}"})
            for number in range(slices)
        ]

    async def __aenter__(self) -> Self:
        await create_pools(self._client, self._pools)
        for manifest in self._manifests():
            await self._apply(manifest)
        for job in self._jobs:
            await self._watched.when(lambda job=job: len(self._up(job)) == GANG, f"{self.name}: {job} runs")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return  # the cluster ends with the benchmark
        for job in self._jobs:
            await self._client.delete(JOB_SETS, NAMESPACE, self._job_set(job), propagation="Background")
        with suppress(NotFound):
            await self._client.delete(QUEUE_POLICIES, None, self.name)
        await self._watched.when(lambda: not any(map(self._pods, self._jobs)), f"{self.name}: pods are gone")
        for pool in self._pools:
            await delete_pool(self._client, pool.name)

    async def trial(self, chance: random.Random) -> Trial:
        """A node under the gang of high priority fails; then it is repaired, and the initial state returns."""
        low = {pod["metadata"]["uid"] for pod in self._up("low")}
        before = {pod["metadata"]["uid"] for pod in self._up("high")}
        node = self._victim(chance)
        failing = asyncio.ensure_future(fail_node(self._client, node, pods=self._recovery))
        failed = await self._watched.when(lambda: not is_ready(self._nodes()[node]), f"{node} is NotReady")
        await failing

        def fresh(running: bool) -> int:
            pods = self._up("high") if running else self._pods("high")
            return sum(
                pod["metadata"]["uid"] not in before and "deletionTimestamp" not in pod["metadata"] for pod in pods
            )

        created = await self._watched.when(lambda: fresh(False) == GANG, f"{self.name}: high has new pods")
        running = await self._watched.when(lambda: fresh(True) == GANG, f"{self.name}: high runs again")
        disturbed = low != {pod["metadata"]["uid"] for pod in self._up("low")}
        await recover_node(self._client, node)
        await self._watched.when(lambda: _is_sound(self._nodes()[node]), f"{node} is repaired")
        for job in self._jobs:
            await self._watched.when(lambda job=job: len(self._up(job)) == GANG, f"{self.name}: {job} runs again")
        await asyncio.sleep(SOAK * min(2 ** (self._failures[node] - 1), LONGEST_SOAK) + MARGIN)
        return Trial(created - failed, running - failed, disturbed)

    def _victim(self, chance: random.Random) -> str:
        """A node of the gang with the fewest failures so far: flapping nodes soak longer when they return."""
        nodes = sorted(pod["spec"]["nodeName"] for pod in self._up("high"))
        fewest = min(self._failures[node] for node in nodes)
        node = chance.choice([node for node in nodes if self._failures[node] == fewest])
        self._failures[node] += 1
        return node

    # --- what is there ---

    def _nodes(self) -> dict[str, Json]:
        return self._watched.objects[NODES]

    def _pods(self, job: str) -> list[Json]:
        name = self._job_set(job)
        pods = self._watched.objects[PODS].values()
        return [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(JOB_SET) == name]

    def _up(self, job: str) -> list[Json]:
        return [
            pod
            for pod in self._pods(job)
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    # --- the recipe under another name ---

    def _job_set(self, job: str) -> str:
        return f"{self.name}-{job}"

    def _manifests(self) -> list[Json]:
        found = [*_documents("10-priority-classes.yaml"), *_documents("20-queues.yaml")]
        files = {"low": "30-low-jax-trillium.yaml", "high": "40-high-jax-trillium.yaml"}
        return [
            *map(self._renamed, found),
            self._policy(),
            *(self._as_job_set(job, *_documents(files[job])) for job in self._jobs),
        ]

    def _renamed(self, manifest: Json) -> Json:
        own = copy.deepcopy(manifest)
        if own["kind"] == "PriorityClass":
            return own
        own["metadata"]["name"] = self.name
        match own["kind"]:
            case "ResourceFlavor":
                own["spec"]["nodeLabels"][ACCELERATOR] = self.name
            case "ClusterQueue":
                flavor = own["spec"]["resourceGroups"][0]["flavors"][0]
                flavor["name"] = self.name
                flavor["resources"][0]["nominalQuota"] = 16 * len(self._pools)
            case _:
                own["spec"]["clusterQueue"] = self.name
        return own

    def _as_job_set(self, job: str, manifest: Json) -> Json:
        own = copy.deepcopy(manifest)
        own["metadata"]["name"] = self._job_set(job)
        own["metadata"]["annotations"]["kueue.x-k8s.io/queue-name"] = self.name
        for row in own["spec"]["replicatedJobs"]:
            row["template"]["spec"]["template"]["spec"]["nodeSelector"][ACCELERATOR] = self.name
        return own

    def _policy(self) -> Json:
        """Every trial costs a swap, and repaired nodes need no soak."""
        recovery = {"enabled": self._recovery, "soak": f"{SOAK:g}s", "swapBudget": 10_000, "breaker": "1"}
        return {
            "apiVersion": "gangline.io/v1alpha1",
            "kind": "QueuePolicy",
            "metadata": {"name": self.name},
            "spec": {"clusterQueues": {"names": [self.name]}, "recovery": recovery},
        }

    async def _apply(self, manifest: Json) -> None:
        resource = BY_KIND[manifest["kind"]]
        group, _, version = manifest["apiVersion"].rpartition("/")
        resource = Resource(group, version, resource.plural, resource.namespaced, resource.kind)
        namespace = NAMESPACE if resource.namespaced else None
        name = manifest["metadata"]["name"]
        await self._client.patch(resource, namespace, name, manifest, kind="apply", field_manager="bench", force=True)


def _is_sound(node: Json) -> bool:
    """Ready, and without the taints that Kubernetes removes some seconds later."""
    return is_ready(node) and not node["spec"].get("taints")


def _documents(name: str) -> list[Json]:
    return list(yaml.safe_load_all((EXAMPLE / name).read_text()))
