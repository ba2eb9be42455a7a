"""Device and log readings of running pods, from exchangeable sources."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import aiohttp

from gangline import bounded, files

# --- telemetry values: one reading per pod, and the interface of their source -----------------------------------------


class SourceError(Exception):
    """The source does not answer, or gives an invalid answer. The message says which and why."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The measurements of one pod. None = not measured."""

    namespace: str
    pod: str
    at: float  # Unix seconds
    gpu: float | None = None  # share of the time in which its GPUs computed, 0 to 1, the mean over its GPUs
    gpu_memory: float | None = None  # bytes in use, of all its GPUs
    kernel_age: float | None = None  # seconds since the last kernel was started
    power: float | None = None  # power of its GPUs, as a multiple of their idle power
    log_bytes: float | None = None  # written to its logs so far
    xid: int | None = None  # the last error that the driver reported (NVIDIA's XID), 0 = none

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.pod}"


class ReadingSource(Protocol):
    async def read(self) -> list[Reading]:
        """The newest reading of every pod that has one. Raises SourceError."""
        ...

    async def close(self) -> None: ...


# --- readings from a file, one JSON object a line: for tests, and for exporters that Gangline does not know -----------
#
#     {"time": 1767225600, "namespace": "team", "pod": "train-0-x7", "gpu": 0.93, "logBytes": 81234}
#
# `time` is in Unix seconds (left out: when the file was changed); `gpu`, `gpuMemory`, `kernelAge`, `power`, `logBytes` and `xid`
# as in `Reading`. The last line about a pod counts. Lines that can't be read are passed over.


#: JSON name -> field
FIELDS: Final = {
    "gpu": "gpu",
    "gpuMemory": "gpu_memory",
    "kernelAge": "kernel_age",
    "power": "power",
    "logBytes": "log_bytes",
    "xid": "xid",
}
#: Only the end of a longer file is read, in bytes.
TAIL: Final = 4 << 20
#: the longest line, in bytes, and the deepest, in levels
LONGEST_FILE: Final = 4096
DEEPEST: Final = 4


class FileSource:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def read(self) -> list[Reading]:
        return await asyncio.to_thread(self._read)

    async def close(self) -> None:
        pass

    def _read(self) -> list[Reading]:
        try:
            changed = self._path.stat().st_mtime
            lines = files.read_tail(self._path, TAIL).splitlines()
        except OSError as error:
            raise SourceError(f"{self._path}: {error.strerror}") from error
        newest: dict[str, Reading] = {}
        for line in lines:
            reading = _reading(line, changed)
            if reading is not None:
                newest[reading.key] = reading
        return list(newest.values())


def _reading(line: bytes, changed: float) -> Reading | None:
    try:
        body = bounded.load_json(line, most_bytes=LONGEST_FILE, most_depth=DEEPEST)
        values: dict[str, Any] = {field: float(body[name]) for name, field in FIELDS.items() if name in body}
        if not all(map(math.isfinite, values.values())):
            return None
        if "xid" in values:
            values["xid"] = int(values["xid"])
        return Reading(str(body["namespace"]), str(body["pod"]), float(body.get("time", changed)), **values)
    except (ValueError, TypeError, KeyError):
        return None


# --- prometheus -------------------------------------------------------------------------------------------------------
#
# Readings from a Prometheus (or anything with its HTTP API), by one instant query per quantity for the whole cluster.
#
# The queries are those of NVIDIA's dcgm-exporter and of the kubelet. `queries` replaces any of them by name, "" drops it. Each
# must return one series per pod with the labels `namespace` and `pod`.


#: Engine activity is meaningful, while "utilisation" only says that some kernel ran, which an idle spin does too.
QUERIES: Final[Mapping[str, str]] = {
    "gpu": (
        "avg by (namespace, pod) (avg_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE[2m]))"
        " or avg by (namespace, pod) (avg_over_time(DCGM_FI_DEV_GPU_UTIL[2m])) / 100"
    ),
    "gpuMemory": "sum by (namespace, pod) (DCGM_FI_DEV_FB_USED) * 1048576",
    "kernelAge": (
        'min by (namespace, pod) (label_replace(label_replace(hami_container_last_kernel_elapsed_seconds, "namespace", "$1",'
        ' "podnamespace", "(.+)"), "pod", "$1", "podname", "(.+)"))'
    ),
    "power": (
        "avg by (namespace, pod) (DCGM_FI_DEV_POWER_USAGE"
        " / on (UUID) group_left () min by (UUID) (min_over_time(DCGM_FI_DEV_POWER_USAGE[1d])))"
    ),
    "logBytes": "sum by (namespace, pod) (kubelet_container_log_filesystem_used_bytes)",
    "xid": "max by (namespace, pod) (DCGM_FI_DEV_XID_ERRORS)",
}
#: dcgm-exporter reports unmeasurable values as huge numbers: those of 64 bits are at least this, others one of these, or one of
#: the three that follow
SENTINEL: Final = 1e15
SENTINELS: Final = (0x7FFF_FFF0, 1 << 47)
#: seconds for all queries together
TIMEOUT: Final = 20.0
#: bytes and values of the largest answer that is read: some 100,000 pods
LONGEST_ANSWER: Final = 64 << 20
MOST_VALUES: Final = 4_000_000
#: characters of its error text that are passed on
SHOWN: Final = 300


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a query, with its labels."""

    labels: Mapping[str, Any]
    at: float  # Unix seconds
    value: float


class PrometheusSource:
    def __init__(self, url: str, queries: Mapping[str, str] | None = None) -> None:
        unknown = sorted(set(queries or ()) - set(QUERIES))
        if unknown:
            raise ValueError(f"no such query: {', '.join(unknown)}. There are: {', '.join(QUERIES)}")
        chosen = {**QUERIES, **(queries or {})}
        self._queries = {name: text for name, text in chosen.items() if text}
        self._url = url.rstrip("/")
        parts = urlsplit(url)
        self._where = f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")  # no password
        self._session: aiohttp.ClientSession | None = None

    async def read(self) -> list[Reading]:
        """The readings of all queries that succeed; SourceError only if none does."""
        answers = await asyncio.gather(*(self._ask(text) for text in self._queries.values()), return_exceptions=True)
        found: dict[str, dict[str, Any]] = {}
        errors: list[BaseException] = []
        for name, answer in zip(self._queries, answers, strict=True):
            if isinstance(answer, BaseException):
                errors.append(answer)
                continue
            for namespace, pod, at, value in answer:
                row = found.setdefault(f"{namespace}/{pod}", {"namespace": namespace, "pod": pod, "at": at})
                row[FIELDS[name]] = int(value) if name == "xid" else value
        if errors and len(errors) == len(self._queries):
            raise SourceError(f"{self._where}: {errors[0]}") from errors[0]
        return [Reading(**row) for row in found.values()]

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def series(self, query: str, *, seconds: float, most_bytes: int) -> list[Sample]:
        """What a query says, without values that were not measured. Raises SourceError."""
        return list(_samples(await self._query(query, seconds, most_bytes)))

    async def _ask(self, query: str) -> list[tuple[str, str, float, float]]:
        return [
            (namespace, pod, each.at, each.value)
            for each in _samples(await self._query(query, TIMEOUT, LONGEST_ANSWER))
            if (namespace := each.labels.get("namespace")) and (pod := each.labels.get("pod"))
        ]

    async def _query(self, query: str, seconds: float, most_bytes: int) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT))
        try:
            limit = aiohttp.ClientTimeout(total=seconds)
            async with self._session.post(
                f"{self._url}/api/v1/query", data={"query": query}, timeout=limit
            ) as response:
                body = bounded.load_json(
                    await _whole(response, most_bytes), most_bytes=most_bytes, most_depth=16, most_values=MOST_VALUES
                )
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise SourceError(f"no answer: {type(error).__name__}") from error
        if not isinstance(body, dict) or body.get("status") != "success":
            said = str(body.get("error"))[:SHOWN] if isinstance(body, dict) else "not the answer of a Prometheus"
            raise SourceError(f"query {query!r:.80}: {said}")
        try:
            return body["data"]["result"]
        except (KeyError, TypeError):
            raise SourceError(f"query {query!r:.80}: not the answer of a Prometheus") from None


async def _whole(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The body; of one that is too long only enough to show that."""
    found = bytearray()
    async for piece in response.content.iter_chunked(1 << 16):
        found += piece
        if len(found) > most:
            break
    return bytes(found)


@bounded.parser(64, instead=math.nan, worst=("9", ".9", "1e", "-"))
def _number(text: str) -> float:
    try:
        return float(text)
    except (ValueError, TypeError, OverflowError):
        return math.nan


def _samples(result: Any) -> Iterator[Sample]:
    """The samples of an instant vector; what is no sample, and what was not measured, is left out."""
    for series in result if isinstance(result, list) else ():
        match series:
            case {"metric": dict(labels), "value": [at, value]}:
                sample = Sample(labels, _number(at), _number(value))
                if math.isfinite(sample.at) and is_measured(sample.value):
                    yield sample
            case _:
                pass


def is_measured(value: float) -> bool:
    """Whether a value was measured: it is finite, and none of the values that stand for "not measured"."""
    return math.isfinite(value) and abs(value) < SENTINEL and not any(0 <= value - each <= 3 for each in SENTINELS)


# --- the source of a setting: `http(s)://…` is a Prometheus, anything else a file with one reading per line -----------


def open_source(where: str, queries: Mapping[str, str] | None = None) -> ReadingSource:
    """Create the source; it opens nothing before the first reading. Raises ValueError for a query of an unknown name."""
    if where.startswith(("http://", "https://")):
        return PrometheusSource(where, queries)
    return FileSource(Path(where))
