"""Parameters of a benchmark run, read from YAML. Times are in seconds, CPU in whole cores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from gangline.kube.resources import Json

FILE = Path(__file__).with_name("admission.yaml")
TOPOLOGIES = ("required", "preferred", "balanced")


class ParameterError(ValueError):
    """A parameter is missing or wrong; the message names file and field."""


@dataclass(frozen=True, slots=True)
class WorkloadClass:
    """Equal workloads: every queue gets `count` of them, one each `every` seconds."""

    name: str
    count: int
    every: float
    cpu: int  # per pod
    runtime: float
    priority: int
    pods: int = 1
    #: taken in turn; none: no topology request
    topologies: tuple[str, ...] = ()

    @property
    def cores(self) -> int:
        return self.cpu * self.pods

    @property
    def work(self) -> float:
        """Core-seconds of all `count` workloads of one queue."""
        return self.count * self.cores * self.runtime


@dataclass(frozen=True, slots=True)
class Nodes:
    """`racks` × `per_rack` equal nodes; with more than one of `blocks`, racks are in blocks of about the same size."""

    racks: int
    per_rack: int
    cpu: int
    blocks: int = 1

    @property
    def cores(self) -> int:
        return self.racks * self.per_rack * self.cpu


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    size: str
    cohorts: int
    queues_per_cohort: int
    nominal_cpu: int
    borrowing_limit_cpu: int
    classes: tuple[WorkloadClass, ...]
    nodes: Nodes | None = None
    topology: bool = False

    @property
    def queues(self) -> list[tuple[str, str]]:
        """(cohort, ClusterQueue) of each queue."""
        return [
            (f"cohort-{cohort}", f"queue-{cohort}-{number}")
            for cohort in range(self.cohorts)
            for number in range(self.queues_per_cohort)
        ]

    @property
    def workloads(self) -> int:
        return len(self.queues) * sum(kind.count for kind in self.classes)

    @property
    def quota(self) -> int:
        """Nominal cores of all queues."""
        return len(self.queues) * self.nominal_cpu

    @property
    def capacity_bound(self) -> float:
        """Seconds that all work takes with every core of the quota busy all the time."""
        return sum(kind.work for kind in self.classes) / self.nominal_cpu

    @property
    def schedule(self) -> float:
        """Seconds from the first creation to the last one's due time."""
        return max((kind.count - 1) * kind.every for kind in self.classes)


def read(name: str, size: str, path: Path = FILE) -> Load:
    """The load `name` of `path`, cut down to `size`. Raises ParameterError."""
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ParameterError(f"{path}: {error}") from error
    loads, sizes = (_section(document, key, str(path)) for key in ("loads", "sizes"))
    load = _load(name, _section(loads, name, f"{path}: loads"), f"{path}: loads.{name}")
    return _resize(load, size, _section(sizes, size, f"{path}: sizes"), f"{path}: sizes.{size}")


def gate(path: Path = FILE) -> dict[str, float]:
    """The largest values of a run's figures that a pull request may show. Raises ParameterError."""
    try:
        limits = _section(yaml.safe_load(path.read_text()), "gate", str(path))
    except (OSError, yaml.YAMLError) as error:
        raise ParameterError(f"{path}: {error}") from error
    for name, limit in limits.items():
        if isinstance(limit, bool) or not isinstance(limit, int | float) or limit <= 0:
            raise ParameterError(f"{path}: gate.{name}: a number above 0 is wanted, not {limit!r}")
    return limits


def _section(document: Any, key: str, where: str) -> Json:
    if not isinstance(document, Mapping) or not isinstance(document.get(key), Mapping):
        known = ", ".join(map(str, document)) if isinstance(document, Mapping) else "nothing"
        raise ParameterError(f"{where}: there is no {key!r} (there is: {known})")
    return dict(document[key])


def _load(name: str, body: Json, where: str) -> Load:
    classes = _section(body, "classes", where)
    if not classes:
        raise ParameterError(f"{where}.classes: at least one is wanted")
    racks, plain = body.get("racks"), body.get("nodes")
    return Load(
        name=name,
        size="full",
        cohorts=_whole(body, "cohorts", where),
        queues_per_cohort=_whole(body, "queues_per_cohort", where),
        nominal_cpu=_whole(body, "nominal_cpu", where),
        borrowing_limit_cpu=_whole(body, "borrowing_limit_cpu", where, least=0),
        classes=tuple(_class(key, _section(classes, key, where), f"{where}.classes.{key}") for key in classes),
        nodes=_racks(racks, f"{where}.racks") if racks else _nodes(plain, f"{where}.nodes") if plain else None,
        topology=bool(racks),
    )


def _class(name: str, body: Json, where: str) -> WorkloadClass:
    topologies = tuple(body.get("topologies", ()))
    for topology in topologies:
        if topology not in TOPOLOGIES:
            raise ParameterError(f"{where}.topologies: {topology!r} is none of {', '.join(TOPOLOGIES)}")
    return WorkloadClass(
        name=name,
        count=_whole(body, "count", where),
        every=_whole(body, "every_ms", where) / 1000,
        cpu=_whole(body, "cpu", where),
        runtime=_whole(body, "runtime_ms", where, least=0) / 1000,
        priority=_whole(body, "priority", where, least=0),
        pods=_whole({"pods": 1, **body}, "pods", where),
        topologies=topologies,
    )


def _racks(body: Json, where: str) -> Nodes:
    return Nodes(
        _whole(body, "count", where),
        _whole(body, "nodes", where),
        _whole(body, "node_cpu", where),
        _whole({"blocks": 1, **body}, "blocks", where),
    )


def _nodes(body: Json, where: str) -> Nodes:
    return Nodes(1, _whole(body, "count", where), _whole(body, "node_cpu", where))


def _resize(load: Load, size: str, body: Json, where: str) -> Load:
    share = body.get("share", 1.0)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise ParameterError(f"{where}.share: {share!r} is not above 0 and at most 1")
    return replace(
        load,
        size=size,
        cohorts=min(load.cohorts, _whole({"cohorts": load.cohorts, **body}, "cohorts", where)),
        queues_per_cohort=min(
            load.queues_per_cohort,
            _whole({"queues_per_cohort": load.queues_per_cohort, **body}, "queues_per_cohort", where),
        ),
        classes=tuple(replace(kind, count=math.ceil(kind.count * share)) for kind in load.classes),
    )


def _whole(body: Json, key: str, where: str, least: int = 1) -> int:
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ParameterError(f"{where}.{key}: a whole number, {least} or more, is wanted, not {value!r}")
    return value
