"""The null controller: admits every workload it sees with one status write and decides nothing. The API floor.

python -m bench.floor --kubeconfig FILE --ready-file FILE
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from pathlib import Path

from bench.objects import FLAVOR
from gangline.api import names
from gangline.api.read import conditions, render
from gangline.engine import model
from gangline.kube import config
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError
from gangline.kube.reflector import Event, Reflector, Upsert
from gangline.kube.resources import Json

#: As many concurrent writes as the operator at most.
CONCURRENCY = 24


class NullController:
    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._gate = asyncio.Semaphore(CONCURRENCY)
        self._seen: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, event: Event) -> None:
        if not isinstance(event, Upsert) or event.obj["metadata"]["uid"] in self._seen:
            return
        self._seen.add(event.obj["metadata"]["uid"])
        task = asyncio.ensure_future(self._admit(event.obj))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _admit(self, workload: Json) -> None:
        metadata = workload["metadata"]
        async with self._gate:
            body = admitted_patch(workload, int(time.time() * 1000))
            while True:
                try:
                    await self._client.patch(
                        kube.WORKLOADS, metadata["namespace"], metadata["name"], body, subresource="status"
                    )
                    return
                except ApiError as error:
                    if not error.retryable:
                        raise
                    await asyncio.sleep(max(0.05, error.retry_after or 0.0))


def admitted_patch(workload: Json, now: int) -> Json:
    """The operator's admission of this Workload, as one fenced status patch (`now` in ms)."""
    queue = workload["metadata"]["namespace"]
    assignments = tuple(_assignment(pod_set) for pod_set in workload["spec"]["podSets"])
    rows: conditions.Conditions = []
    conditions.put(
        rows, names.QUOTA_RESERVED, True, "QuotaReserved", f"Quota reserved in ClusterQueue {queue}", now=now
    )
    conditions.put(rows, names.ADMITTED, True, "Admitted", "The workload is admitted", now=now)
    return {
        "metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]},
        "status": {"admission": render.admission(model.Admission(queue, assignments)), "conditions": rows},
    }


def _assignment(pod_set: Json) -> model.PodSetAssignment:
    count = pod_set["count"]
    cpu = sum(int(box["resources"]["requests"]["cpu"]) for box in pod_set["template"]["spec"]["containers"])
    return model.PodSetAssignment(pod_set["name"], count, {"cpu": FLAVOR}, {"cpu": cpu * count * 1000})


async def _main(arguments: argparse.Namespace) -> None:
    gc.set_threshold(50_000, 20, 100)
    async with ApiClient(config.load(arguments.kubeconfig), user_agent="gangline-bench-floor") as client:
        controller = NullController(client)
        reflector = Reflector(client, kube.WORKLOADS)
        following = asyncio.ensure_future(reflector.run(controller.take))
        await reflector.synced.wait()
        arguments.ready_file.write_text("{}")
        await following


def main() -> None:
    parser = argparse.ArgumentParser(description="The null controller of the benchmark.")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--ready-file", type=Path, required=True)
    asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
