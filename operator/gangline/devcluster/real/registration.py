"""Real nodes as the cluster sees them: waited for until they are Ready, and given the GPUs that they pretend to have."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.nodes import LEASE_NAMESPACE, wait_ready
from gangline.devcluster.real.pool import GPU, RealPool
from gangline.kube import config
from gangline.kube.client import ApiClient, ApiError, NotFound
from gangline.kube.resources import LEASES, NODES

WITHIN: Final = 90.0


def await_nodes(kubeconfig: Path, pool: RealPool, names: Iterable[str]) -> None:
    """Return when these nodes have sent a heartbeat, are Ready and show their GPUs. Raises DevClusterError."""
    began = datetime.now(UTC)

    async def wait() -> None:
        async with ApiClient(config.load(kubeconfig)) as client:
            async with asyncio.TaskGroup() as group:
                for name in chosen:
                    group.create_task(_register(client, name, pool.gpus, began))
            await wait_ready(client, chosen, timeout=WITHIN)

    chosen = list(names)
    with ThreadPoolExecutor(1) as thread:  # the caller may have an event loop of its own
        try:
            thread.submit(lambda: asyncio.run(wait())).result()
        except ExceptionGroup as group:
            raise DevClusterError(f"the real nodes did not register: {group.exceptions[0]}") from group


async def _register(client: ApiClient, name: str, gpus: int, began: datetime) -> None:
    """Wait for the kubelet to register the node, and give it GPUs; the kubelet keeps what others put there."""
    deadline = time.monotonic() + WITHIN
    while True:
        try:
            await client.patch(NODES, None, name, {"status": {"capacity": {GPU: str(gpus)}}}, subresource="status")
            node = await client.get(NODES, None, name)
            shown = node["status"].get("allocatable", {}).get(GPU) == str(gpus)
            if shown and await _heartbeat(client, name) > began:
                return
        except NotFound:
            pass
        except ApiError:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise DevClusterError(f"node {name} did not register within {WITHIN:g} s")
        await asyncio.sleep(0.2)


async def _heartbeat(client: ApiClient, name: str) -> datetime:
    """When the kubelet last renewed the node's Lease: its clock is ours. Raises NotFound."""
    lease = await client.get(LEASES, LEASE_NAMESPACE, name)
    return datetime.fromisoformat(lease["spec"]["renewTime"])
