"""What open dashboards cost the leader: `make bench-dashboard`, JSON on stdout.

The cluster is that of `tests.bench.answers`: 5,000 jobs wait and 500 run on as many nodes, jobs come and go ten times a second.
One dashboard, and then BROWSERS at once, each of another person, watch the rows for SECONDS, over plain HTTP from another
process: one half those of the cluster, one half those of a namespace.

Figures are CPU milliseconds of the leader's only thread per second: of everything it does, and without anybody who watches.
`first_ms`: until a dashboard has all rows; `first_cpu_ms`: what that costs the leader. `held_ms`: CPU that others took while a
task of the loop slept for 2 ms.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import Any, Final

from aiohttp import ClientSession, ClientTimeout
from tests.bench.answers import MINE, Held, Leader, running, say, serving

from gangline.kube.resources import Json

BROWSERS: Final = 50
SECONDS: Final = 20.0
#: of the first rows, before anything is counted
SETTLING: Final = 10.0
_WATCH: Final = {"watch": "true", "sendInitialEvents": "true", "timeoutSeconds": "3600"}


def main() -> None:
    if len(sys.argv) > 2:
        asyncio.run(_watch(sys.argv[1], int(sys.argv[2])))
        return
    print(json.dumps(asyncio.run(measured()), indent=1))


# --- those who look ---------------------------------------------------------------------------------------------------


async def _watch(root: str, browsers: int) -> None:
    """In a process of its own: watch until the parent ends it. Prints how long each waited for its first rows."""
    async with ClientSession(timeout=ClientTimeout(total=None), read_bufsize=2**22) as session:
        waited = await asyncio.gather(*(_look(session, root, number) for number in range(browsers)))
        print(json.dumps(waited), flush=True)
        await asyncio.Event().wait()


async def _look(session: ClientSession, root: str, number: int) -> float:
    """Seconds until all rows of the first moment have come; the rest is read and thrown away."""
    begun = time.perf_counter()
    path = "/liverows" if number % 2 == 0 else f"/namespaces/{MINE}/liverows"
    answer = await session.get(root + path, params=_WATCH, headers={"X-User": f"user-{number}"})
    answer.raise_for_status()
    while b'"k8s.io/initial-events-end"' not in await answer.content.readline():
        pass
    asyncio.get_running_loop().create_task(_read(answer))
    return time.perf_counter() - begun


async def _read(answer: Any) -> None:
    async for _ in answer.content.iter_any():
        pass


# --- the leader -------------------------------------------------------------------------------------------------------


async def measured() -> Json:
    leader = Leader()
    leader.fill()
    leader.controller.leading = False
    await leader.foresight.outlook()
    say("the leader has its rows")
    held = Held()
    async with serving(leader, held) as root, running(leader.live()), running(held.run()):
        await asyncio.sleep(2.0)
        held.figures()
        found: Json = {"none": {"cpu_ms_per_second": await _counted(), "held_ms": held.figures()["held_ms"]}}
        for browsers in (1, BROWSERS):
            found[str(browsers)] = await _with(root, browsers, held)
            say(f"{browsers}: {found[str(browsers)]}")
            await asyncio.sleep(2.0)
    one, many = found["1"]["cpu_ms_per_second"], found[str(BROWSERS)]["cpu_ms_per_second"]
    return {**found, "many_over_one": round(many / one, 3)}


async def _with(root: str, browsers: int, held: Held) -> Json:
    command = [sys.executable, "-m", "tests.bench.dashboard", root, str(browsers)]
    before = time.thread_time()
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        waited = json.loads(await child.stdout.readline())
        first = (time.thread_time() - before) * 1000
        await asyncio.sleep(SETTLING)
        held.figures()
        spent, late = await _counted(), held.figures()["held_ms"]
    finally:
        child.kill()
        await child.wait()
    return {
        "cpu_ms_per_second": spent,
        "held_ms": late,
        "first_ms": {"median": round(sorted(waited)[len(waited) // 2] * 1000), "most": round(max(waited) * 1000)},
        "first_cpu_ms": round(first),
    }


async def _counted() -> float:
    """CPU milliseconds of this thread per second."""
    before, begun = time.thread_time(), time.perf_counter()
    await asyncio.sleep(SECONDS)
    return round((time.thread_time() - before) * 1000 / (time.perf_counter() - begun), 1)


if __name__ == "__main__":
    main()
