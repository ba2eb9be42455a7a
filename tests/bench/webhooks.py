"""The webhooks under load: `make bench-webhooks`, JSON on stdout.

`gangline admin webhooks` runs as users run it, registered with a real API server. `paced` sends reviews over TLS at a fixed rate,
whether or not earlier ones are answered; a time is measured from the moment at which its request was due. `ramp` raises the rate
until the 99th percentile passes `GOAL_MS`. `corpus` sends every input of the fuzzers' corpus. `through_server` creates objects on
the API server at a fixed rate, without storing them. Milliseconds; CPU is user and system time of the process per request.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import itertools
import json
import ssl
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import orjson
from bench.command import carried_out
from bench.parameters import read
from bench.report import rounded
from bench.stack import BenchError, Process, Stack, machine
from bench.usage import usage
from tests.bench import reviews

from gangline.kube import config, resources
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError
from gangline_webhooks.registration import NAME

Json = dict[str, Any]
T = TypeVar("T")
#: sends one and returns its name and the status of the answer
Send = Callable[[T], Awaitable[tuple[str, int]]]

GOAL_MS = 50.0
#: requests per second of the ramp, one step after the other
STEPS = (100, 200, 300, 400, 600, 800, 1000, 1300, 1600, 2000, 2500, 3000)
#: of the writes to the API server: more than that it can't take on two cores
WRITES = 50
#: requests that warm a process up before it is measured
WARM = 300
#: seconds after which a request counts as failed: what the API server grants
TIMEOUT = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The webhooks under load.")
    parser.add_argument("--rate", type=int, default=200, help="reviews per second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement (default: %(default)s)")
    parser.add_argument("--step", type=float, default=5.0, help="seconds of a step of the ramp (default: %(default)s)")
    parser.add_argument("--profile", type=Path, help="sample the stacks of the webhooks into this file")
    options = parser.parse_args(arguments)
    return carried_out(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    with Stack(read("baseline", "smoke")) as stack:
        process = stack.webhooks(options.profile)
        with machine() as surroundings:
            result = asyncio.run(measured(stack, process, options.rate, options.seconds, options.step))
    result["machine"] = surroundings
    print(json.dumps(rounded(result)))
    paced, failed = result["paced"], _failures(result)
    print(
        f"{options.rate}/s: p99 {paced['p99']:.1f} ms, {paced['cpu_ms']:.2f} ms of CPU; up to {result['ramp_held']}/s within "
        f"{GOAL_MS:g} ms; {failed} failed",
        file=sys.stderr,
    )
    return 1 if failed else 0


def _failures(result: Json) -> int:
    """Answers of 5xx, and requests without an answer, at the paced load, of the corpus and through the API server."""
    parts = (result["paced"], result["corpus"], result["through_server"])
    return sum(count for part in parts for status, count in part["statuses"].items() if not 200 <= int(status) < 500)


async def measured(stack: Stack, process: Process, rate: int, seconds: float, step: float) -> Json:
    login = config.load(stack.kubeconfig)
    async with ApiClient(login) as api:
        bundle = await _bundle(api)
        trust = ssl.create_default_context(cadata=bundle.decode())
        assert process.ready_file is not None
        address = f"https://127.0.0.1:{json.loads(process.ready_file.read_text())['port']}"
        connector = aiohttp.TCPConnector(limit=0, ssl=trust)
        async with aiohttp.ClientSession(
            address, connector=connector, timeout=aiohttp.ClientTimeout(TIMEOUT)
        ) as session:
            send = _sender(session)
            asked = reviews.mix()
            await _paced(send, asked, rate, WARM / rate, process)
            paced = await _paced(send, asked, rate, seconds, process)
            ramp, held = await _ramp(send, asked, step, process)
            corpus = await _one_by_one(send, reviews.hostile())
        namespace = stack.load.queues[0][1]
        writes = reviews.writes(namespace)
        await _paced(_creator(api), writes, WRITES, 2.0, process)
        through = await _paced(_creator(api), writes, WRITES, seconds, process)
    return {"paced": paced, "ramp": ramp, "ramp_held": held, "corpus": corpus, "through_server": through}


async def _bundle(api: ApiClient) -> bytes:
    found = await api.get(resources.VALIDATING_WEBHOOKS, None, NAME)
    return base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"])


def _sender(session: aiohttp.ClientSession) -> Send[reviews.Asked]:
    async def send(asked: reviews.Asked) -> tuple[str, int]:
        try:
            async with session.post(
                asked.path, data=asked.body, headers={"Content-Type": "application/json"}
            ) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError):
            return asked.name, 0
        return asked.name, _said(answer.status, body)

    return send


def _said(status: int, body: bytes) -> int:
    """The status; of a review, that of the refusal in it: a failure inside is a failure, too."""
    if status != 200:
        return status
    refusal = orjson.loads(body)["response"].get("status") or {}
    return int(refusal.get("code", 200))


def _creator(api: ApiClient) -> Send[Json]:
    async def create(obj: Json) -> tuple[str, int]:
        resource = resources.BY_KIND[obj["kind"]]
        group, _, version = obj["apiVersion"].rpartition("/")
        as_written = resource._replace(version=version) if group else resource
        name = f"{obj['kind']} {version}"
        try:
            await api.create(
                as_written,
                obj["metadata"].get("namespace"),
                obj,
                query={"dryRun": "All"},
                within=TIMEOUT,
            )
        except ApiError as error:
            return name, error.status
        return name, 201

    return create


async def _paced(send: Send[T], asked: Iterator[T], rate: int, seconds: float, process: Process) -> Json:
    """So many a second, each at its time. Times are those from the moment a request was due until its answer was there."""
    count = max(1, int(rate * seconds))
    due = list(itertools.islice(asked, count))  # made before: to make them is no work of the webhooks'
    times: dict[str, list[float]] = defaultdict(list)
    statuses: Counter[int] = Counter()
    before, start = usage(process.pid), time.perf_counter() + 0.05

    async def one(number: int, what: T) -> None:
        at = start + number / rate
        name, status = await send(what)
        times[name].append((time.perf_counter() - at) * 1e3)
        statuses[status] += 1

    running: list[asyncio.Task[None]] = []
    for number, what in enumerate(due):
        wait = start + number / rate - time.perf_counter()
        await asyncio.sleep(max(0.0, wait))
        running.append(asyncio.ensure_future(one(number, what)))
    await asyncio.gather(*running)
    spent = usage(process.pid).since(before)
    every = [each for rows in times.values() for each in rows]
    return {
        "rate": rate,
        "requests": count,
        **_percentiles(every),
        "cpu_ms": spent.cpu_seconds / count * 1e3,
        "peak_mb": spent.peak_mb,
        "statuses": {str(status): number for status, number in sorted(statuses.items())},
        "by_kind": {name: {"requests": len(rows), **_percentiles(rows)} for name, rows in sorted(times.items())},
    }


async def _ramp(send: Send[T], asked: Iterator[T], seconds: float, process: Process) -> tuple[list[Json], int]:
    """Each step with its percentiles, up to the first that passes the goal twice; and the highest rate that kept it."""
    steps: list[Json] = []
    held = 0
    for rate in STEPS:
        for _ in range(2):  # others' work on the machine passes
            step = await _paced(send, asked, rate, seconds, process)
            steps.append(rounded({key: step[key] for key in ("rate", "p50", "p99", "cpu_ms", "statuses")}))
            if step["p99"] <= GOAL_MS:
                held = rate
                break
        else:
            break
    return steps, held


async def _one_by_one(send: Send[T], asked: Iterable[T]) -> Json:
    statuses: Counter[int] = Counter()
    slowest = 0.0
    for what in asked:
        start = time.perf_counter()
        _, status = await send(what)
        statuses[status] += 1
        slowest = max(slowest, time.perf_counter() - start)
    if not statuses:
        raise BenchError("the corpus is empty")
    by_status = {str(status): number for status, number in sorted(statuses.items())}
    return {"inputs": sum(statuses.values()), "statuses": by_status, "max": slowest * 1e3}


def _percentiles(times: Sequence[float]) -> dict[str, float]:
    ordered = sorted(times)
    at = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in at.items()}


if __name__ == "__main__":
    raise SystemExit(main())
