"""Seeks the objects that cost most CPU and memory for their size: `python -m tests.fuzz.cost --seconds 120 --seed 1` (`make
fuzz-cost`), JSON on stdout.

Subjects are the reviews of each kind (`/mutate`, `/validate`, `/convert`), every other route that takes a body, and what the
operator does with a stored object of each kind, from the watch event to its first plan. For each of them burdens
(`tests.fuzz.costly`) are drawn, the worst are changed a little, and the very worst are tried at growing sizes. Costs are CPU
milliseconds per KiB of JSON, and of the operator also KiB of memory per KiB, which it needs for as long as the object exists.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import orjson
from tests.fuzz import costly, objects, operator_http, operator_loop, webhooks
from tests.fuzz.costly import Burden
from tests.jobs.foreign import OWN

from gangline import jobs

Json: TypeAlias = dict[str, Any]

#: KiB of the objects among which the worst are sought, and at which these are then tried; the API server stores up to 1.5 MiB
SOUGHT_AT: Final = 8
GROWN_TO: Final = (32, 128, 512, 1400)
#: seconds of CPU after which an object is not made larger
ENOUGH: Final = 3.0
#: how many of the worst are tried at growing sizes
FINALISTS: Final = 3


@dataclass(frozen=True, slots=True)
class Subject:
    """Something that works on objects. `seed` is one that it accepts, `prepare` makes a run of one: only the run is measured."""

    name: str
    seed: Json
    prepare: Callable[[Json], Callable[[], object]]
    keeps: bool = False
    #: KiB of the largest object that reaches it
    largest: int = GROWN_TO[-1]


@dataclass(frozen=True, slots=True)
class Found:
    """What an object costs: CPU seconds, and bytes of its JSON."""

    burdens: tuple[Burden, ...]
    cpu: float
    size: int

    @property
    def per_kib(self) -> float:
        """CPU milliseconds."""
        return 1000 * self.cpu / (self.size / 1024)

    def told(self) -> Json:
        what = " and ".join(map(str, self.burdens))
        return {
            "ms_per_kib": round(self.per_kib, 4),
            "cpu_ms": round(1000 * self.cpu, 2),
            "kib": self.size // 1024,
            "object": what,
        }


@dataclass
class Search:
    """The worst objects of one subject. One seed gives one sequence of objects as long as their costs are ordered alike."""

    subject: Subject
    draw: random.Random
    best: list[Found] = field(default_factory=list[Found])
    tried: int = 0

    def run(self, *, until: Callable[[], bool]) -> None:
        """Try objects of SOUGHT_AT KiB: new ones, and changes of the worst."""
        while not until():
            self.tried += 1
            found = cost(self.subject, self._candidate(), SOUGHT_AT * 1024, tries=1)
            self.best.append(found)
            self.best.sort(key=lambda each: -each.per_kib)
            del self.best[2 * FINALISTS :]

    def grown(self) -> list[Found]:
        """The finalists at growing sizes, each as large as it can be in the time."""
        made: list[Found] = []
        for each in self.best[:FINALISTS]:
            made.append(each)
            for size in (size for size in GROWN_TO if size <= self.subject.largest):
                found = cost(self.subject, each.burdens, size * 1024)
                made.append(found)
                if found.cpu > ENOUGH:
                    break
        return made

    def _candidate(self) -> tuple[Burden, ...]:
        fresh = costly.drawn(self.subject.seed, self.draw)
        if not self.best or self.draw.random() < 0.5:
            return (fresh,)
        worst = self.draw.choice(self.best).burdens
        match self.draw.randrange(3):
            case 0:  # the same shape elsewhere
                return (replace(fresh, how="add" if fresh.how == "repeat" else fresh.how, shape=worst[0].shape),)
            case 1:  # another shape at the same place
                return (replace(worst[0], shape=fresh.shape), *worst[1:])
            case _:  # both
                return (*worst[:2], fresh)


def cost(subject: Subject, burdens: tuple[Burden, ...], size: int, *, tries: int = 2) -> Found:
    """What one object costs: the least of so many tries."""
    obj = costly.burdened(subject.seed, burdens, size)
    length = len(orjson.dumps(obj))
    took: list[float] = []
    for _ in range(tries):
        work = subject.prepare(obj)
        gc.freeze()  # what else this process holds is not looked through, as in one that holds little
        begun = time.thread_time()
        work()
        took.append(time.thread_time() - begun)
        gc.unfreeze()
        if took[0] > ENOUGH:
            break
    return Found(burdens, min(took), length)


def kept(subject: Subject, found: Found) -> float:
    """Bytes of memory that stay after the work, per byte of JSON."""
    obj = costly.burdened(subject.seed, found.burdens, min(found.size, 256 * 1024))
    length = len(orjson.dumps(obj))
    work = subject.prepare(obj)
    del obj
    gc.freeze()  # to look through what else this process holds takes most of a second
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        stays = work()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        del stays
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    return (after - before) / length


# --- subjects ---------------------------------------------------------------------------------------------------------


def subjects() -> list[Subject]:
    return [*reviews(), *conversions(), *requests(), *stored_objects()]


def reviews() -> Iterable[Subject]:
    """Of each kind and version that is reviewed."""
    seen: set[tuple[str, str]] = set()
    for obj in objects.objects():
        kind = f"{obj['kind']} {obj['apiVersion']}"
        for path in ("/mutate", "/validate"):
            if (path, kind) not in seen:
                seen.add((path, kind))
                yield Subject(f"{path} {kind}", obj, lambda made, path=path: _posted(path, objects.review(made, None)))
        if obj["kind"] in ("GPUJob", "Job") and ("update", kind) not in seen:
            seen.add(("update", kind))
            yield Subject(f"/validate update of {kind}", obj, lambda made: _posted("/validate", _update(made)))


def _update(made: Json) -> bytes:
    """The review of a change of one annotation."""
    meta = made.get("metadata")
    after = {**(meta if isinstance(meta, dict) else {}), "annotations": {"example.com/a": "b"}}
    return objects.review({**made, "metadata": after}, made)


def _posted(path: str, body: bytes) -> Callable[[], object]:
    app = webhooks.webhooks()
    return lambda: app.ask("POST", path, body) and None


def conversions() -> Iterable[Subject]:
    """Of each kind with two versions, from each of them."""
    seen: set[tuple[str, str]] = set()
    for obj in objects.objects():
        kind = obj["kind"], obj["apiVersion"]
        if obj["apiVersion"] not in webhooks.VERSIONS or kind in seen:
            continue
        seen.add(kind)
        wanted = next(version for version in webhooks.VERSIONS if version != obj["apiVersion"])
        yield Subject(f"/convert {obj['kind']} {obj['apiVersion']}", obj, lambda made, to=wanted: _converted(made, to))


def _converted(made: Json, wanted: str) -> Callable[[], object]:
    request = {"uid": "u", "desiredAPIVersion": wanted, "objects": [made]}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    return _posted("/convert", orjson.dumps(body))


def requests() -> Iterable[Subject]:
    """Every route of the operator that takes a body, whoever may send it."""
    served = operator_http.operator_http()
    for app in served.apps:
        for method, pattern in served.routes(app):
            if method != "POST":
                continue
            path = operator_http.filled(pattern)
            yield Subject(f"POST {path}", _body(path), lambda made, app=app, path=path: _asked(app, path, made))


def _body(path: str) -> Json:
    if "/extender/" in path:
        return {"Pod": {"metadata": {"name": "a", "namespace": "team"}, "spec": {}}, "NodeNames": ["n"]}
    if "/whatifs" in path:
        return {"kind": "WhatIf", "spec": {"job": next(each for each in objects.objects() if each["kind"] == "GPUJob")}}
    if "/planchecks" in path:
        return {"kind": "PlanCheck", "spec": operator_http.PLANS[0]}
    return {"step": 3, "total": 10}


def _asked(app: str, path: str, body: Json) -> Callable[[], object]:
    served, request = operator_http.operator_http(), operator_http.request("POST", path, orjson.dumps(body))
    return lambda: served.ask(app, request) and None


def stored_objects() -> Iterable[Subject]:
    """A stored object of each kind that tenants may write: its event, its plan and what follows."""
    jobs.declare([OWN])  # a kind that a configuration file declares
    for kind, obj in operator_loop.stored():
        yield Subject(f"operator {kind}", obj, operator_loop.shown, keeps=True)


# --- the command ------------------------------------------------------------------------------------------------------


def measure(seconds: float, seed: int, chosen: str = "", tries: int | None = None) -> Json:
    """The worst of each subject whose name has `chosen` in it, in equal shares of the time, or after so many `tries` each."""
    found = [subject for subject in subjects() if chosen in subject.name]
    rows: Json = {}
    for number, subject in enumerate(found):
        search = Search(subject, random.Random(f"{seed} {subject.name}"))
        end = time.monotonic() + seconds / len(found)
        search.run(until=(lambda: time.monotonic() > end) if tries is None else (lambda: search.tried >= tries))  # noqa: B023
        grown = search.grown()
        worst = max(grown, key=lambda each: each.per_kib)
        dearest = max(grown, key=lambda each: each.cpu)
        plain = cost(subject, (), 0)
        row = {"worst": worst.told(), "dearest": dearest.told(), "ordinary": plain.told(), "tried": search.tried}
        if subject.keeps:
            row["kib_kept_per_kib"] = round(max(kept(subject, each) for each in search.best[:FINALISTS]), 1)
        rows[subject.name] = row
        print(f"{number + 1}/{len(found)} {subject.name}: {json.dumps(row['dearest'])}", file=sys.stderr, flush=True)
    return rows


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.cost", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="for the search (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="subjects in whose name this is found")
    said = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    rows = measure(said.seconds, said.seed, said.only)
    print(json.dumps({"seed": said.seed, "subjects": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
