"""What the operator tells over HTTP: who waits where, as Kueue's visibility API says it, and what is forecast. Read-only.

Kueue's answer is served under Kueue's path (`/apis/visibility.kueue.x-k8s.io/v1beta2/…`) and has Kueue's shape; `forecast` and
`expectedStart` are ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson
from aiohttp import web

from gangline.control.controller import Controller
from gangline.kube import resources as kube

if TYPE_CHECKING:
    from gangline.control.forecasting import Forecasting

Json: TypeAlias = dict[str, Any]

GROUP: Final = "visibility.kueue.x-k8s.io"
VERSIONS: Final = ("v1beta1", "v1beta2")
#: items of one answer, where the question names no number, and at most
DEFAULT_LIMIT: Final = 1000
MAX_LIMIT: Final = 100_000


class Visibility:
    """Answers from the mirror and the engine of one process. Where an answer is not Kueue's, `cluster` says whose it is."""

    def __init__(self, controller: Controller, forecasting: Forecasting | None) -> None:
        self._controller = controller
        self._forecasting = forecasting

    def add_to(self, app: web.Application) -> None:
        for version in VERSIONS:
            root = f"/apis/{GROUP}/{version}"
            app.router.add_get(f"{root}/clusterqueues/{{queue}}/pendingworkloads", self._of_cluster_queue)
            app.router.add_get(
                f"{root}/namespaces/{{namespace}}/localqueues/{{queue}}/pendingworkloads", self._of_local_queue
            )
        app.router.add_get("/forecasts", self._forecasts)
        app.router.add_get("/accuracy", self._accuracy)

    # --- forecasts ----------------------------------------------------------------------------------------------------

    async def _forecasts(self, _: web.Request) -> web.Response:
        """Every estimate of a whole runtime. Whoever asks has them made for a while, also where no policy needs them."""
        forecasting = self._forecasting
        if forecasting is None:
            return _answer({"cluster": self._cluster(), "forecasts": None})
        from gangline.control.forecasting import as_json

        forecasting.ask()
        await forecasting.settled()
        return _answer({"cluster": self._cluster(), "forecasts": as_json(forecasting.forecasts.estimates())})

    async def _accuracy(self, _: web.Request) -> web.Response:
        """How right forecasts and expected starts have been since this process began."""
        forecasting = self._forecasting
        if forecasting is None:
            return _failure(404, "NotFound", "nothing is forecast here")
        from gangline.control.forecasting import accuracy_as_json

        verdict = forecasting.verdict()
        body: Json = {"cluster": self._cluster(), "model": {"used": verdict.trusted, "reason": verdict.reason}}
        body["runtimes"] = accuracy_as_json(forecasting.forecasts.records)
        return _answer({**body, "starts": forecasting.expected.accuracy.as_json()})

    def _cluster(self) -> str:
        found = self._controller.mirror.get(kube.NAMESPACES, "kube-system")
        return found["metadata"]["uid"] if found is not None else ""

    # --- who waits ----------------------------------------------------------------------------------------------------

    async def _of_cluster_queue(self, request: web.Request) -> web.Response:
        name = request.match_info["queue"]
        if self._controller.mirror.get(kube.CLUSTER_QUEUES, name) is None:
            return _missing("clusterqueues", name)
        return self._summary(request, self._items(name))

    async def _of_local_queue(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["queue"]
        local = self._controller.mirror.get(kube.LOCAL_QUEUES, f"{namespace}/{name}")
        if local is None:
            return _missing("localqueues", name)
        items = self._items(local["spec"].get("clusterQueue", ""))
        ours = (i for i in items if (i["metadata"]["namespace"], i["localQueueName"]) == (namespace, name))
        return self._summary(request, ours)

    def _summary(self, request: web.Request, items: Iterator[Json]) -> web.Response:
        try:
            offset = max(0, int(request.query.get("offset", 0)))
            limit = min(MAX_LIMIT, max(0, int(request.query.get("limit", DEFAULT_LIMIT))))
        except ValueError:
            return _failure(400, "BadRequest", "offset and limit must be whole numbers")
        version = request.path.split("/")[3]
        body = {"kind": "PendingWorkloadsSummary", "apiVersion": f"{GROUP}/{version}", "metadata": {}}
        return _answer({**body, "items": list(islice(items, offset, offset + limit))})

    def _items(self, cluster_queue: str) -> Iterator[Json]:
        """All who wait in a ClusterQueue, in its order."""
        controller = self._controller
        places: Counter[str] = Counter()
        starts = self._forecasting.expected.starts if self._forecasting is not None else {}
        if self._forecasting is not None:
            self._forecasting.ask()
        for position, key in enumerate(controller.engine.pending(cluster_queue)):
            raw, value = controller.mirror.get(kube.WORKLOADS, key), controller.mirror.workload_value(key)
            if raw is None or value is None:
                continue
            meta = raw["metadata"]
            local_queue = f"{value.namespace}/{value.queue}"
            item: Json = {
                "metadata": {
                    field: meta[field]
                    for field in ("name", "namespace", "ownerReferences", "creationTimestamp")
                    if field in meta
                },
                "priority": value.priority + value.boost,
                "localQueueName": value.queue,
                "positionInClusterQueue": position,
                "positionInLocalQueue": places[local_queue],
            }
            places[local_queue] += 1
            estimate = self._forecasting.forecasts.estimate(key) if self._forecasting is not None else None
            if estimate is not None:
                item["forecast"] = {
                    "p50Seconds": round(estimate.q50),
                    "p90Seconds": round(estimate.q90),
                    "source": estimate.source,
                    "samples": estimate.samples,
                }
            if (start := starts.get(key)) is not None:
                from gangline.control.expected import start_status

                item["expectedStart"] = start_status(start)
            yield item


def _answer(body: Json, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type="application/json", status=status)


def _missing(resource: str, name: str) -> web.Response:
    return _failure(404, "NotFound", f'{resource} "{name}" not found')


def _failure(code: int, reason: str, message: str) -> web.Response:
    """A Status, as an API server says it."""
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return _answer({**body, "message": message, "reason": reason, "code": code}, code)
