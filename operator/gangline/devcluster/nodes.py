"""Simulated nodes: pools of them, made and kept Ready by kwok; nodes that fail and recover on demand."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from gangline.api.names import SIMULATED_FAILURE
from gangline.devcluster.errors import DevClusterError
from gangline.kube import config
from gangline.kube.client import AlreadyExists, ApiClient, NotFound
from gangline.kube.resources import LEASES, NODES, PODS, Json

#: label on simulated nodes: their node pool
POOL_LABEL = "gangline.io/node-pool"
MANAGED_BY_KWOK = {"kwok.x-k8s.io/node": "fake"}
LEASE_NAMESPACE = "kube-node-lease"
NO_HOLDER = "gangline-simulated-failure"
KWOK_LAG = 1.0  # seconds, ample for kwok to see a change of a pod
_HEARTBEAT_UNDER_WAY = 0.3  # seconds that a node change takes in kwok once begun
_LAST_HEARTBEATS = 5  # number of such changes that may still arrive
PARALLEL_REQUESTS = 16
NAME = re.compile(r"^[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?$")
DEFAULTS: Mapping[str, int | str] = {"cpu": 96, "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": 110}


@dataclass(frozen=True, slots=True)
class NodeTaint:
    """A node taint; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class EqualNodes:
    """`count` equal nodes NAME-0 … with these resources (Kubernetes quantities; unnamed ones are ample)."""

    name: str
    count: int
    allocatable: Mapping[str, int | str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[NodeTaint] = ()

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"EqualNodes.name: {self.name!r} must be 1 to 52 lower-case letters, digits and dashes")
        if self.count < 0:
            raise ValueError(f"EqualNodes.count: {self.count} must not be negative")

    @property
    def node_names(self) -> list[str]:
        return [f"{self.name}-{index}" for index in range(self.count)]

    def manifests(self) -> list[Json]:
        """The Node objects as a kubelet would register them."""
        return [self._manifest(name) for name in self.node_names]

    def _manifest(self, name: str) -> Json:
        resources = {key: str(value) for key, value in {**DEFAULTS, **self.allocatable}.items()}
        usual = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {**usual, POOL_LABEL: self.name, **self.labels},
                "annotations": dict(MANAGED_BY_KWOK),
            },
            "spec": {"taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in self.taints]},
            "status": {"allocatable": resources, "capacity": resources},
        }


async def create_pools(client: ApiClient, pools: Iterable[EqualNodes], *, timeout: float = 60.0) -> list[str]:  # noqa: ASYNC109
    """Create the missing nodes. Returns all their names when every one is Ready.

    Raises DevClusterError after `timeout` seconds.
    """
    manifests = [manifest for pool in pools for manifest in pool.manifests()]
    await _each(manifests, lambda manifest: _create(client, manifest))
    names = [manifest["metadata"]["name"] for manifest in manifests]
    await wait_ready(client, names, timeout=timeout)
    return names


async def delete_pool(client: ApiClient, pool: str) -> int:
    """Delete a pool's nodes. Returns their number. The cluster then removes their pods."""
    listing = await client.list(NODES, label_selector=f"{POOL_LABEL}={pool}")
    await _each([node["metadata"]["name"] for node in listing.items], lambda name: _delete(client, name))
    return len(listing.items)


async def wait_ready(client: ApiClient, names: Iterable[str], *, timeout: float = 60.0) -> None:  # noqa: ASYNC109
    """Return when all these nodes are Ready. Raises DevClusterError naming those that are not within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    wanted = set(names)
    while True:
        listing = await client.list(NODES, resource_version="0", limit=0)
        waiting = wanted - {node["metadata"]["name"] for node in listing.items if is_ready(node)}
        if not waiting:
            return
        if time.monotonic() > deadline:
            some = ", ".join(sorted(waiting)[:5])
            raise DevClusterError(f"{len(waiting)} nodes are not Ready after {timeout:g} s: {some}; is kwok running?")
        await asyncio.sleep(0.1)


async def fail_node(client: ApiClient, name: str, *, silent: bool = False, pods: bool = True) -> None:
    """Let a node fail: its pods stop changing (even when they are deleted), and it is NotReady at once.

    With `silent` it only stops sending heartbeats; the controller manager notices after its node monitor grace period. Without
    `pods` it is only NotReady: its pods still run, and end when they are deleted.
    """
    dead = {"metadata": {"annotations": {SIMULATED_FAILURE: "true"}}}
    await client.patch(NODES, None, name, dead)
    if pods:
        await _annotate_pods(client, name, dead)
    if silent:
        await asyncio.sleep(KWOK_LAG)  # kwok must have seen its pods stop before it loses the node
        await _take_lease(client, name)
    else:
        await _not_ready(client, name)


async def _not_ready(client: ApiClient, name: str) -> None:
    """Write NotReady until it stays: a heartbeat in progress in kwok may still write Ready."""
    for _ in range(_LAST_HEARTBEATS):
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        condition = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "simulated failure"}
        condition |= {"lastTransitionTime": now, "lastHeartbeatTime": now}
        status = {"status": {"conditions": [condition]}}
        await client.patch(NODES, None, name, status, kind="strategic", subresource="status")
        await asyncio.sleep(_HEARTBEAT_UNDER_WAY)
        node = await client.get(NODES, None, name)
        if any(row["type"] == "Ready" and row["status"] == "False" for row in node["status"]["conditions"]):
            return


async def recover_node(client: ApiClient, name: str) -> None:
    """Recover a failed node; kwok makes it Ready and resumes its pods (after a silent failure: within 10 s)."""
    try:
        lease = await client.get(LEASES, LEASE_NAMESPACE, name)
        if lease["spec"].get("holderIdentity") == NO_HOLDER:
            await client.delete(LEASES, LEASE_NAMESPACE, name)
    except NotFound:
        pass
    alive = {"metadata": {"annotations": {SIMULATED_FAILURE: None}}}
    await client.patch(NODES, None, name, alive)
    await _annotate_pods(client, name, alive)


async def _annotate_pods(client: ApiClient, node: str, patch: Json) -> None:
    async def annotate(pod: Json) -> None:
        try:
            await client.patch(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"], patch)
        except NotFound:
            return

    listing = await client.list(PODS, field_selector=f"spec.nodeName={node}")
    await _each(listing.items, annotate)


async def _take_lease(client: ApiClient, node: str) -> None:
    """Take the node's lease, so that kwok leaves its heartbeats to another sender, which does not exist."""
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    spec = {"holderIdentity": NO_HOLDER, "leaseDurationSeconds": 2**31 - 1, "renewTime": now}
    await client.patch(LEASES, LEASE_NAMESPACE, node, {"spec": spec})


def is_ready(node: Json) -> bool:
    conditions = node.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def create_pools_in(kubeconfig: Path, pools: Iterable[EqualNodes], *, context: str | None = None) -> list[str]:
    """`create_pools` for callers without an event loop."""

    async def create() -> list[str]:
        async with ApiClient(config.load(kubeconfig, context)) as client:
            return await create_pools(client, pools)

    return asyncio.run(create())


async def _create(client: ApiClient, manifest: Json) -> None:
    try:
        await client.create(NODES, None, manifest)
    except AlreadyExists:
        return


async def _delete(client: ApiClient, name: str) -> None:
    try:
        await client.delete(NODES, None, name)
    except NotFound:
        return


async def _each(items, act) -> None:
    """Process all items, a few at a time."""
    gate = asyncio.Semaphore(PARALLEL_REQUESTS)

    async def one(item) -> None:
        async with gate:
            await act(item)

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(one(item))
