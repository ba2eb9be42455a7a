"""What the pods of a job print: merged in the order of time, and followed over connections that break.

Every line is asked for with its time. After a break, lines are asked for again from the second before the last one, and those
that were seen since then are left out.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import click

from gangline import bounded
from gangline.api import names
from gangline.console.output import terminal
from gangline.console.views import denied
from gangline.console.views.targets import Target
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, Forbidden, Invalid, NotFound
from gangline.kube.resources import GPU_JOBS, JOBS, PODS, Json
from gangline.kube.transport import Call, unavailable

#: pods that are read at a time
MOST_PODS: Final = 64
#: bytes of a line; of a longer one the rest is left out
LONGEST_LINE: Final = 64 * 1024
#: lines of the last two seconds that are remembered for a break; with more, lines of equal times may come twice
_REMEMBERED: Final = 100_000
#: lines that wait to be printed, of all pods together
_WAITING: Final = 1000
#: seconds between two looks for new pods, and before a broken connection is tried again
LOOK_EVERY: Final = 2.0
AGAIN_AFTER: Final = 1.0
#: labels by which pods name their job, their role and their index
_OF_JOB: Final = (
    *(
        "batch.kubernetes.io/job-name",
        "jobset.sigs.k8s.io/jobset-name",
        "training.kubeflow.org/job-name",
        "ray.io/cluster",
    ),
    *("workload.codeflare.dev/appwrapper", "sparkoperator.k8s.io/app-name", "leaderworkerset.sigs.k8s.io/name"),
    *("ray.io/originated-from-cr-name", names.POD_GROUP),
)
_ROLES: Final = (
    *(names.ROLE_LABEL, "jobset.sigs.k8s.io/replicatedjob-name", "training.kubeflow.org/replica-type", "ray.io/group"),
    "spark-role",
)
_INDICES: Final = (
    *("batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-index", names.POD_GROUP_INDEX),
    *("leaderworkerset.sigs.k8s.io/worker-index", "apps.kubernetes.io/pod-index"),
)
_TIME: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z ", re.ASCII)


class LogLine(NamedTuple):
    """A line of a pod. `at`: its time, as text that sorts; `rank`: the pod's place; `text` without the line's end."""

    at: str
    rank: int
    text: str


@dataclass(frozen=True, slots=True)
class RankedPod:
    """A pod with its place among those of the job, and its name in front of lines."""

    rank: int
    prefix: str
    name: str
    uid: str
    phase: str
    containers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which lines of a pod are wanted. `since`: seconds, `tail`: lines, from the end; `container`: "" for the first one."""

    container: str = ""
    tail: int | None = None
    since: int | None = None

    def of(self, pod: RankedPod, **more: str) -> dict[str, str]:
        query = {"timestamps": "true", "container": self.container or next(iter(pod.containers), "")}
        if self.tail is not None:
            query["tailLines"] = str(self.tail)
        if self.since is not None:
            query["sinceSeconds"] = str(self.since)
        return {**query, **more}


# --- the pods of a job ------------------------------------------------------------------------------------------------


async def pods_of(api: ApiClient, namespace: str, target: Target) -> list[RankedPod]:
    """The pods of a job that exist, ended ones too, by rank. Raises click.ClickException where the user may not list pods."""
    name = target.job["metadata"]["name"] if target.job is not None else ""
    label = {GPU_JOBS: names.GPUJOB_LABEL, JOBS: "batch.kubernetes.io/job-name"}.get(target.resource or PODS, "")
    try:
        listed = (await api.list(PODS, namespace, label_selector=f"{label}={name}" if label and name else "")).items
    except Forbidden as error:
        raise click.ClickException(denied.said(error)) from error
    return ranked(
        listed if label and name else [pod for pod in listed if _belongs(pod, target, name)], _order(target.job)
    )


def _belongs(pod: Json, target: Target, name: str) -> bool:
    meta = pod["metadata"]
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    workload = target.workload["metadata"]["name"] if target.workload is not None else ""
    if workload and workload in (annotations.get(names.WORKLOAD_ANNOTATION), labels.get(names.POD_GROUP)):
        return True
    if target.job is None:
        return False
    uid = target.job["metadata"]["uid"]
    owners = {each.get("uid") for each in meta.get("ownerReferences") or ()}
    return uid in (meta["uid"], *owners) or any(labels.get(key) == name for key in _OF_JOB)


def _order(job: Json | None) -> Mapping[str, int]:
    """The roles as they are written."""
    spec = (job or {}).get("spec") or {}
    rows = spec.get("roles") or spec.get("replicatedJobs") or []
    return {str(row.get("name")): place for place, row in enumerate(rows)} if isinstance(rows, list) else {}


def ranked(pods: Sequence[Json], order: Mapping[str, int]) -> list[RankedPod]:
    """The pods with their ranks; those of the same role and index, of several attempts, have the same rank."""
    seats: list[tuple[tuple[int, str, int], str, Json]] = []
    for pod in sorted(
        pods, key=lambda each: (each["metadata"].get("creationTimestamp") or "", each["metadata"]["name"])
    ):
        labels = pod["metadata"].get("labels") or {}
        role = next((labels[key] for key in _ROLES if labels.get(key)), "")
        index = next((found for key in _INDICES if (found := bounded.whole(labels.get(key))) is not None), None)
        place = index if index is not None else len(seats)
        seats.append(((order.get(role, len(order)), role, place), f"{role}-{place}" if role else str(place), pod))
    ranks = {seat: rank for rank, seat in enumerate(sorted({seat for seat, _, _ in seats}))}
    found = [_ranked(ranks[seat], prefix, pod) for seat, prefix, pod in seats]
    return sorted(found, key=lambda each: each.rank)


def _ranked(rank: int, prefix: str, pod: Json) -> RankedPod:
    meta, containers = pod["metadata"], (pod.get("spec") or {}).get("containers") or []
    phase = (pod.get("status") or {}).get("phase") or ""
    return RankedPod(rank, prefix, meta["name"], meta["uid"], phase, tuple(each["name"] for each in containers))


# --- one pod ----------------------------------------------------------------------------------------------------------


async def lines(
    api: ApiClient, namespace: str, pod: RankedPod, query: Mapping[str, str]
) -> AsyncGenerator[tuple[bytes, bool]]:
    """The lines of one answer, each with its time, and whether it has ended: the last may be cut off. Raises ApiError."""
    import aiohttp

    path = PODS.path(namespace, pod.name, "log")
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0)
    call = Call("get", PODS, "GET", path, dict(query), subresource="log")
    response = await api.send(call, timeout)
    rest = b""
    try:
        async for chunk in response.content.iter_any():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line[:LONGEST_LINE], True
            rest = rest[:LONGEST_LINE]
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise unavailable(error) from error
    finally:
        response.close()
    if rest:
        yield rest, False


class Position:
    """How far the lines of a pod are read: the time of the last one, and the lines of the two seconds before it."""

    def __init__(self) -> None:
        self._second = ""
        self._seen: Counter[bytes] = Counter()
        self._repeated: Counter[bytes] = Counter()
        self._from = b""

    @property
    def since(self) -> str:
        """The time from which lines are to be asked for after a break; "" at the beginning."""
        if not self._second:
            return ""
        return (datetime.fromisoformat(self._second) - timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def begin(self) -> None:
        """Expect once more, in a new answer, what has been seen since `since`."""
        self._repeated, self._from = self._seen.copy(), self.since[:19].encode()

    def is_new(self, line: bytes) -> bool:
        """Whether a line was not there before the break."""
        if self._repeated.get(line, 0) > 0:
            self._repeated[line] -= 1
            return False
        timed = _TIME.match(line)
        if timed and timed[1] < self._from:  # a server that takes the time less exactly
            return False
        second = timed[1].decode() if timed else self._second
        if second > self._second:
            self._second = second
            first = self.since[:19].encode()
            self._seen = Counter({each: count for each, count in self._seen.items() if each[:19] >= first})
        if len(self._seen) < _REMEMBERED:
            self._seen[line] += 1
        return True


def parsed(line: bytes, rank: int) -> LogLine:
    """The line without its time in front."""
    match = _TIME.match(line)
    if match is None:
        return LogLine("", rank, line.decode(errors="replace"))
    at = f"{match[1].decode()}.{(match[2] or b'').decode().ljust(9, '0')}"
    return LogLine(at, rank, line[match.end() :].decode(errors="replace").removesuffix("\r"))


async def followed(
    api: ApiClient,
    namespace: str,
    pod: RankedPod,
    query: LogQuery,
    pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> AsyncGenerator[LogLine]:
    """The lines of a pod as they are printed, each once, until the pod has ended and all are read, or it is gone."""
    position, reported = Position(), ""
    while True:
        try:
            phase = (await api.get(PODS, namespace, pod.name)).get("status", {}).get("phase") or ""
            over = phase in ("Succeeded", "Failed")
            since = {"sinceTime": position.since} if position.since else {}
            wanted = (LogQuery(query.container) if since else query).of(
                pod, **since, **({} if over else {"follow": "true"})
            )
            position.begin()
            async with aclosing(lines(api, namespace, pod, wanted)) as found:
                async for line, whole in found:
                    if (whole or over) and position.is_new(line):
                        yield parsed(line, pod.rank)
            if over:
                return
            reported = ""
        except NotFound:
            return
        except Invalid:  # its container has not started
            pass
        except Forbidden as error:
            raise click.ClickException(denied.said(error)) from error
        except ApiError as error:
            if not error.retryable:
                raise
            if reported != str(error):
                reported = str(error)
                terminal.say(f"({pod.prefix}: {error.message}; reading goes on)", err=True)
        await pause(AGAIN_AFTER)


# --- all pods ---------------------------------------------------------------------------------------------------------


async def so_far(api: ApiClient, namespace: str, pods: Sequence[RankedPod], query: LogQuery) -> AsyncIterator[LogLine]:
    """What the pods have printed, by time. One line of each pod is held at a time."""
    streams = [_pod_so_far(api, namespace, pod, query) for pod in pods]
    heap: list[tuple[str, int, int, LogLine]] = []
    try:
        for place, stream in enumerate(streams):
            if (line := await anext(stream, None)) is not None:
                heapq.heappush(heap, (line.at, line.rank, place, line))
        while heap:
            at, _, place, line = heap[0]
            yield line
            if (following := await anext(streams[place], None)) is None:
                heapq.heappop(heap)
            else:  # a line without a time stays behind the one before it
                heapq.heapreplace(heap, (following.at or at, following.rank, place, following))
    finally:
        for stream in streams:
            await stream.aclose()


async def _pod_so_far(api: ApiClient, namespace: str, pod: RankedPod, query: LogQuery) -> AsyncGenerator[LogLine]:
    try:
        async with aclosing(lines(api, namespace, pod, query.of(pod))) as found:
            async for line, _ in found:
                yield parsed(line, pod.rank)
    except Forbidden as error:
        raise click.ClickException(denied.said(error)) from error
    except (Invalid, NotFound) as error:  # its container has not started, or its pod is gone
        terminal.say(f"({pod.prefix}: {error.message})", err=True)


async def following(
    api: ApiClient,
    namespace: str,
    look: Callable[[], Awaitable[tuple[Sequence[RankedPod], bool]]],
    query: LogQuery,
    show: Callable[[RankedPod, LogLine], None],
    pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> None:
    """Show the lines of all pods as they are printed. `look` finds the pods, and whether the job is over: then no more come, and
    this ends once all of theirs are shown.
    """
    waiting: asyncio.Queue[tuple[RankedPod, LogLine]] = asyncio.Queue(_WAITING)
    readers: dict[str, asyncio.Task[None]] = {}

    async def read(pod: RankedPod) -> None:
        async with aclosing(followed(api, namespace, pod, query, pause)) as found:
            async for line in found:
                await waiting.put((pod, line))

    async def print_all() -> None:
        while True:
            show(*await waiting.get())
            waiting.task_done()

    printer = asyncio.create_task(print_all())
    try:
        while True:
            pods, over = await look()
            for pod in pods:
                if pod.uid not in readers and sum(not each.done() for each in readers.values()) < MOST_PODS:
                    readers[pod.uid] = asyncio.create_task(read(pod))
            for task in readers.values():
                if task.done():
                    task.result()
            if over and all(pod.uid in readers and readers[pod.uid].done() for pod in pods):
                break
            await pause(LOOK_EVERY)
        await waiting.join()
    finally:
        tasks = [printer, *readers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
