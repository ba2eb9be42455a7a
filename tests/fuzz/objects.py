"""Objects as an API server sends them for review, and changes that a hostile author could make to them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from typing import Any

import orjson
from tests.api import accepted
from tests.builders.written import Json, gpujob, job, recipe
from tests.fuzz.draw import Draw

from gangline.api import names

#: what takes the place of any value
ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        2**31,
        2**63 - 1,
        -(2**63),
        1.5,
        1e300,
        "",
        "x",
        "-1",
        "9" * 5000,
        "9" * 100_000,
        "٣",
        "\U0001f600",
    ),
    *("0-99999999999", "a,b,,c", "1h" * 500, "{" * 300, [], {}, [None], [[]], [{}], {"": ""}, {"a": None}, ["x"] * 50),
    {"name": {"name": 1}},
    *("\n", " ", "../..", "a/b/c", "%s%n", "$(x)", "2026-99-99T00:00:00Z", "1e400", "1Ei"),
)
#: every annotation and label that is read somewhere
KEYS = sorted(text for name, text in vars(names).items() if name.isupper() and isinstance(text, str) and "/" in text)


def jobset() -> Json:
    body = {"parallelism": 2, "completions": 2, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "js", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"suspend": True, "replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": body}}]},
    }


def annotated(body: Json) -> Json:
    """With everything in its metadata that a job may say."""
    meta = body.setdefault("metadata", {})
    meta.setdefault("annotations", {}).update(
        {
            "gangline.io/expected-runtime": "1h",
            "gangline.io/checkpoint-interval": "10m",
            "gangline.io/attempt": "1",
            "kueue.x-k8s.io/job-min-parallelism": "1",
            "kueue.x-k8s.io/priority-boost": "1",
        }
    )
    meta.setdefault("labels", {}).update(
        {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/max-exec-time-seconds": "60"}
    )
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "o", "uid": "u", "controller": True}
    meta.setdefault("ownerReferences", [owner])
    return body


@functools.cache
def objects() -> tuple[Json, ...]:
    """One of each kind that is reviewed, in every version, with all of its fields. Not to be changed."""
    jobs = [annotated(each) for each in (job(), jobset(), gpujob(), recipe())]
    made = [
        {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": "a", "namespace": "team"}, **body}
        for kind, group, version, schema in accepted.schemas()
        for body in (accepted.fullest(schema), accepted.smallest(schema))
    ]
    return (*jobs, *(each for each in made if each["kind"] != "WorkloadPriorityClass"))


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every object or list in it with each of its keys or indices."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield value, key
            yield from places(inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield value, number
            yield from places(inner)


#: bytes of JSON of the largest value that is written a second time, and of the largest object that grows by that
MOST_COPIED, MOST_GROWN = 2_000, 200_000


def edit(body: Json, draw: Draw) -> None:
    """Changes the object in one place, or writes one annotation or label; its kind and version stay."""
    found = [place for place in places(body) if place[0] is not body or place[1] not in ("apiVersion", "kind")]
    if not found:
        return
    what = draw.below(12)
    if what < 2:
        _write(body, ("annotations", "labels")[what], draw)
        return
    parent, key = draw.one_of(found)
    small = what in (8, 9) and len(orjson.dumps(parent[key])) < MOST_COPIED and len(orjson.dumps(body)) < MOST_GROWN
    match what:
        case 2 | 3:
            parent[key] = copy.deepcopy(draw.one_of(ODD))
        case 4:
            parent[key] = draw.text()
        case 5:
            parent[key] = draw.number()
        case 6:
            del parent[key]
        case 7:
            parent[key] = _other_reference(draw)
        case 8 if small and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        case 8 if small:
            parent[draw.text()] = copy.deepcopy(parent[key])
        case 9 if small and isinstance(parent[key], list | str):
            parent[key] = orjson.loads(orjson.dumps(parent[key] * draw.below(64)))
        case 8 | 9:
            parent[key] = [parent[key]]
        case 10 if isinstance(parent, dict):
            parent[draw.one_of(KEYS)] = draw.text()
        case _:
            parent[key] = {draw.text(): parent[key]}


def _write(body: Json, where: str, draw: Draw) -> None:
    """One of the texts that are read somewhere."""
    meta = body.get("metadata")
    if isinstance(meta, dict):
        texts = meta.setdefault(where, {})
        if isinstance(texts, dict):
            texts[draw.one_of(KEYS)] = draw.text()


def _other_reference(draw: Draw) -> Any:
    """A part of another object."""
    parent, key = draw.one_of(list(places(draw.one_of(objects()))))
    return copy.deepcopy(parent[key])


def review(obj: Any, old: Any) -> bytes:
    request = {"uid": "u", "operation": "UPDATE" if old is not None else "CREATE", "object": obj, "oldObject": old}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**request, "namespace": "team"}}
    return orjson.dumps(body)
