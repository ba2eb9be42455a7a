"""What it costs to read a Workload by hand and with the model of its CRD: `make bench-reading`, JSON on stdout.

The Workloads are those of the baseline load, as the API server sends them while they wait and while they run. `by_hand` is what
the operator does. `by_model` gives the same fact of the engine through the model (tests/api/modelled_workload.py); of it,
`validating` is pydantic's part alone. CPU microseconds of this thread for one Workload, the best of several rounds.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from time import thread_time
from typing import Any

import orjson
from tests.api import modelled_workload

from bench import objects, parameters
from gangline.api.read import models, parse
from gangline.api.read.reading import parse_time
from gangline.api.schema.v1beta2.workload import Workload
from gangline.engine import model
from gangline.kube.resources import Json

#: Workloads in a round, and rounds; the first warms up
NUMBER, ROUNDS = 2000, 6
EPOCH = datetime(2026, 1, 31, tzinfo=UTC)


def main() -> None:
    waiting = [as_stored(body, number) for number, body in enumerate(_of_the_load())]
    running = [as_running(body, number) for number, body in enumerate(waiting)]
    print(json.dumps({"microseconds": {"waiting": measured(waiting), "running": measured(running)}}))


def measured(bodies: Sequence[Json]) -> dict[str, float]:
    """Microseconds for one of these Workloads, by how it is read."""
    assert all(by_model(body) == parse.workload(body) for body in bodies)
    return {
        "by_hand": _best(bodies, parse.workload),
        "by_model": _best(bodies, by_model),
        "validating": _best(bodies, Workload.model_validate),
    }


def by_model(body: Json) -> model.Workload:
    metadata = body["metadata"]
    return model.Workload(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        created=parse_time(metadata["creationTimestamp"]),
        **modelled_workload.facts(models.read(Workload, body, "")),
    )


def _best(bodies: Sequence[Json], read: Callable[[Json], Any]) -> float:
    """Each round reads objects that nobody has seen, as they come from the wire."""
    raw = orjson.dumps(bodies)
    rounds: list[float] = []
    for _ in range(ROUNDS):
        fresh = orjson.loads(raw)
        start = thread_time()
        for body in fresh:
            read(body)
        rounds.append(thread_time() - start)
    return round(min(rounds[1:]) / len(bodies) * 1e6, 1)


def _of_the_load() -> list[Json]:
    kinds = itertools.cycle(parameters.read("baseline", "full").classes)
    return [objects.workload(next(kinds), f"queue-{number % 30}", number) for number in range(NUMBER)]


# --- what the API server makes of them ----------------------------------------------------------------------------------


def as_stored(body: Json, number: int) -> Json:
    metadata = {
        **body["metadata"],
        "uid": f"6f1c7a52-0000-4000-8000-{number:012}",
        "creationTimestamp": _time(number),
        "generation": 1,
        "resourceVersion": str(1000 + number),
    }
    return {**body, "metadata": metadata}


def as_running(body: Json, number: int) -> Json:
    """Admitted, with all of its pods ready."""
    pod_set = body["spec"]["podSets"][0]
    cpu = pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    assignment = {
        "name": pod_set["name"],
        "count": pod_set["count"],
        "flavors": {"cpu": objects.FLAVOR},
        "resourceUsage": {"cpu": str(int(cpu) * pod_set["count"])},
    }
    return {
        **body,
        "status": {
            "conditions": [_true(kind, number + 1) for kind in ("QuotaReserved", "Admitted", "PodsReady")],
            "admission": {"clusterQueue": body["metadata"]["namespace"], "podSetAssignments": [assignment]},
        },
    }


def _time(second: int) -> str:
    return (EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _true(kind: str, at: int) -> Json:
    return {
        "type": kind,
        "status": "True",
        "reason": kind,
        "message": "As the operator says it",
        "lastTransitionTime": _time(at),
        "observedGeneration": 1,
    }


if __name__ == "__main__":
    main()
