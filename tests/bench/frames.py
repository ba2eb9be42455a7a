"""What a frame of the dashboard's timeline costs the browser's main thread: `make bench-frames`, JSON on stdout.

The page is the timeline alone, over 5,000 made-up runs on 500 nodes (`ui/dev/timeline`, built by `npm run frames`), in headless
Chromium. It is panned, scrolled and zoomed, FRAMES frames each, by rows of queues and of nodes. Then DELTAS changes of rows come,
as many as in an hour in which the leader's rows change every two seconds; the heap is compared before and after them.

Figures are milliseconds of the main thread for each frame; `first_draw_ms`: from the page's first script to its first picture;
`heap_growth_mib`: of the heap that a garbage collection leaves.
"""

from __future__ import annotations

import asyncio
import functools
import http.server
import json
import statistics
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.async_api import CDPSession, Page, async_playwright
from tests.cluster.test_dashboard import ARGUMENTS, CHROMIUM

Json = dict[str, Any]
BUILT: Final = Path(__file__).parents[2] / "ui" / "node_modules" / ".cache" / "frames"
FRAMES: Final = 300
DELTAS: Final = 1800
ROWS: Final = ("queues", "nodes")


def main() -> None:
    if CHROMIUM is None:
        raise SystemExit("no Chromium is installed (Debian and Ubuntu: apt install chromium)")
    with served(BUILT) as root:
        print(json.dumps(asyncio.run(measured(root)), indent=1))


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """The files of a directory over HTTP inside the block, which gets the URL."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=directory)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


async def measured(root: str) -> Json:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        found: Json = {}
        for rows in ROWS:
            page = await browser.new_page(viewport={"width": 1600, "height": 900})
            await page.goto(f"{root}/?group={rows}")
            ready = await page.evaluate("ganglineBench.ready")
            found[rows] = {"bars": ready["bars"], "nodes": ready["nodes"], "first_draw_ms": round(ready["firstDraw"])}
            for what in ("pan", "scroll", "zoom"):
                found[rows][what] = summary(await page.evaluate(f"ganglineBench.{what}({FRAMES})"))
            found[rows]["deltas"] = await changed(page)
            await page.close()
        await browser.close()
        return found


async def changed(page: Page) -> Json:
    """Changes of rows, and what they leave in memory."""
    tools = await page.context.new_cdp_session(page)
    await page.evaluate("ganglineBench.deltas(60)")  # what is made once is made by now
    before = await heap(tools)
    times = await page.evaluate(f"ganglineBench.deltas({DELTAS})")
    after = await heap(tools)
    return {**summary(times), "count": DELTAS, "heap_mib": round(after, 1), "heap_growth_mib": round(after - before, 2)}


async def heap(tools: CDPSession) -> float:
    await tools.send("HeapProfiler.collectGarbage")
    return (await tools.send("Runtime.getHeapUsage"))["usedSize"] / 2**20


def summary(times: Sequence[float]) -> Json:
    return {
        "median_ms": round(statistics.median(times), 2),
        "p95_ms": round(statistics.quantiles(times, n=20)[-1], 2),
        "most_ms": round(max(times), 1),
    }


if __name__ == "__main__":
    main()
