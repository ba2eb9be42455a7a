"""Examples: directories of manifests that are read, checked and submitted in order, jobs at their simulated arrival times.

Files are applied in the order of their names. The annotation `gangline.io/simulated-arrival: 8s` on a job delays its
submission. `simulated/node-pools.yaml` lists the nodes to simulate; `kubectl apply -f` on the directory ignores it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gangline.api import names, quantity
from gangline.devcluster.nodes import EqualNodes, NodeTaint
from gangline.files import read_text
from gangline.kube.client import ApiClient, ApiError
from gangline.kube.resources import BY_KIND, GPU_JOBS, JOB_SETS, JOBS, Json, Resource

FIELD_MANAGER = "gangline-run"
#: seconds for which a refused write is repeated while webhooks and controllers come up
PATIENCE = 20.0
_JOB_KINDS = frozenset({JOBS.kind, GPU_JOBS.kind, JOB_SETS.kind})


class ExampleError(Exception):
    """The example is not usable; the message names the file and the error."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of an example. `arrival` is seconds after the start."""

    obj: Json
    resource: Resource
    source: str
    arrival: float = 0.0

    @property
    def name(self) -> str:
        return self.obj["metadata"]["name"]

    @property
    def namespace(self) -> str | None:
        return self.obj["metadata"].get("namespace", "default") if self.resource.namespaced else None

    @property
    def is_job(self) -> bool:
        return self.resource.kind in _JOB_KINDS

    @property
    def job_id(self) -> tuple[str, str, str]:
        """Kind, namespace and name, as the job's Workload identifies it."""
        return self.resource.kind, self.namespace or "", self.name

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


@dataclass(frozen=True, slots=True)
class Example:
    directory: Path
    manifests: tuple[Manifest, ...]

    @property
    def settings(self) -> list[Manifest]:
        """The objects that are applied before the jobs: namespaces, flavors, queues."""
        return [m for m in self.manifests if not m.is_job]

    @property
    def jobs(self) -> list[Manifest]:
        """The jobs, in order of arrival."""
        return sorted((m for m in self.manifests if m.is_job), key=lambda m: m.arrival)

    def node_pools(self) -> list[EqualNodes]:
        """The node pools to simulate, [] without a pools file. Raises ExampleError."""
        path = self.directory / "simulated" / "node-pools.yaml"
        if not path.is_file():
            return []
        (pools, *_) = [*_documents(path), None]
        if not isinstance(pools, list):
            raise ExampleError(f"{path}: not a list of pools")
        return [_pool(pool, f"{path}, pool {number}") for number, pool in enumerate(pools, start=1)]


def bundled(name: str = "quickstart") -> Path:
    """The directory of a bundled example: in the checkout, or in the installed package. Raises ExampleError."""
    package = Path(__file__).resolve().parents[2]
    for root in (package.parents[1] / "examples", package / "_data" / "examples"):
        if (root / name).is_dir():
            return root / name
    raise ExampleError(f"there is no example {name!r} in this installation: name a directory with --example")


def load(directory: Path) -> Example:
    """Read all manifests of a directory. Raises ExampleError."""
    files = sorted([*directory.glob("*.yaml"), *directory.glob("*.yml")])
    if not files:
        raise ExampleError(f"{directory}: no *.yaml files there")
    manifests = tuple(manifest for path in files for manifest in _read(path))
    if not any(m.is_job for m in manifests):
        raise ExampleError(f"{directory}: no Job and no GPUJob in it")
    return Example(directory, manifests)


def _pool(pool: Any, source: str) -> EqualNodes:
    try:
        taints = [NodeTaint(**taint) for taint in pool.pop("taints", [])]
        return EqualNodes(**pool, taints=taints)
    except (TypeError, AttributeError, ValueError) as error:
        raise ExampleError(f"{source}: {error}") from error


def _documents(path: Path) -> list[Any]:
    try:
        return list(yaml.safe_load_all(read_text(path)))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ExampleError(f"{path}: {error}") from error


def _read(path: Path) -> Iterator[Manifest]:
    for number, document in enumerate(_documents(path), start=1):
        if document is not None:
            yield _manifest(document, f"{path.name}, document {number}")


def _manifest(document: Any, source: str) -> Manifest:
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise ExampleError(f"{source}: not a manifest (kind is missing)")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise ExampleError(f"{source}: metadata.name is missing")
    known = BY_KIND.get(document["kind"])
    group, _, version = str(document.get("apiVersion", "")).rpartition("/")
    if known is None or known.group != group:
        raise ExampleError(f"{source}: kind {document['kind']} of {document.get('apiVersion')!r} is not supported here")
    return Manifest(document, known._replace(version=version), source, _arrival(metadata, source))


def _arrival(metadata: Json, source: str) -> float:
    text = (metadata.get("annotations") or {}).get(names.SIMULATED_ARRIVAL)
    if text is None:
        return 0.0
    try:
        return quantity.parse_duration(str(text))
    except quantity.QuantityError as error:
        raise ExampleError(f"{source}: metadata.annotations[{names.SIMULATED_ARRIVAL}]: {error}") from error


# --- submitting -------------------------------------------------------------------------------------------------------


async def apply(api: ApiClient, manifests: list[Manifest]) -> None:
    """Apply the manifests in order, with server-side apply. Raises ExampleError for a permanent error of the API server."""
    for manifest in manifests:
        await _apply(api, manifest)


async def submit(api: ApiClient, jobs: list[Manifest], started: float) -> None:
    """Apply every job at its arrival time after `started` (time.monotonic())."""
    for job in jobs:
        await asyncio.sleep(max(0.0, started + job.arrival - time.monotonic()))
        await _apply(api, job)


async def _apply(api: ApiClient, manifest: Manifest) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            await api.patch(
                manifest.resource,
                manifest.namespace,
                manifest.name,
                manifest.obj,
                kind="apply",
                field_manager=FIELD_MANAGER,
                force=True,
            )
            return
        except ApiError as error:
            if not error.retryable or time.monotonic() > deadline:
                raise ExampleError(f"{manifest.source}: the API server rejected {manifest}: {error.message}") from error
        await asyncio.sleep(0.5)
