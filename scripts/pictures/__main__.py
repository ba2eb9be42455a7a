"""`make pictures`: starts a local control plane with a cluster that is worth a look, and takes a picture of each page.

    python -m scripts.pictures [--only NAME …] [--stay]

The past comes from Gangline's replay of a made-up load, the future from the operator's plan. Nothing is drawn by hand.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from playwright.async_api import Browser, Page, async_playwright, expect
from scripts.pictures import lab, past, png
from scripts.pictures.shots import FOLDER, HEIGHT, SHOTS, THEMES, WIDTH, Shot

from gangline.console.stack import stack
from gangline.console.stack.stack import Stack, Wishes
from gangline.devcluster.clusters import NamedCluster
from gangline.devcluster.nodes import create_pools, fail_node
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.resources import BY_KIND, Json
from gangline.ui import front_end

NAME = "pictures"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
#: seconds after the first job: those that borrow, that wait, that reclaim, the urgent one, the failed node, the pictures
BORROWING, WAITING, RECLAIMING, URGENT, FAILING, PICTURES = 10.0, 18.0, 40.0, 55.0, 70.0, 250.0
#: bytes from which on a picture gets a palette: those of text, whose few colours lose nothing
LARGE = 160_000
#: seconds of the past in pictures that say when they begin
BEFORE = 5400.0
#: seconds since the urgent job, in pictures of what was decided then
STORY = PICTURES - URGENT - 10.0
#: seconds between two small jobs, and for a page to be complete
SMALL, COMPLETE = 5.5, 90.0


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m scripts.pictures")
    options.add_argument("--only", nargs="*", default=[], help="Names of pictures; the others stay as they are.")
    options.add_argument("--stay", action="store_true", help="Keep the cluster up until Ctrl-C.")
    given = options.parse_args()
    if CHROMIUM is None:
        print("no Chromium is installed (Debian and Ubuntu: apt install chromium)", file=sys.stderr)
        return 1
    try:
        front_end.built()
    except front_end.NotBuiltError as error:
        print(error, file=sys.stderr)
        return 1
    wanted = [shot for shot in SHOTS if not given.only or shot.name in given.only]
    cluster = NamedCluster(NAME)
    cluster.down(forget=True)
    store = cluster.directory / "services" / "history.db"
    runs = past.remember(store, time.time())
    print(f"✓ {len(runs)} past runs", flush=True)
    try:
        with stack.ended_by_signals(), stack.named(NAME, print, Wishes()) as standing:
            print(standing.connection.kubectl_hint, standing.dashboard, sep="\n", flush=True)
            asyncio.run(_take(standing, wanted, lambda of: past.remember_attempts(store, runs, of), stay=given.stay))
    except KeyboardInterrupt:
        return 130
    finally:
        cluster.down(forget=True)
    return 0


async def _take(standing: Stack, wanted: list[Shot], remember: Callable[[str], None], *, stay: bool) -> None:
    """`remember`: writes past attempts for the cluster with this identity."""
    async with standing.connection.client() as api:
        remember((await api.get(kube.NAMESPACES, None, "kube-system"))["metadata"]["uid"])
        await create_pools(api, lab.NODES)
        await _create(api, lab.settings())
        busy = asyncio.create_task(_small_jobs(api))
        await _tell_the_story(api)
        async with _browser() as browser:
            await _pictures(browser, standing.dashboard, wanted)
        print(f"✓ {len(wanted) * len(THEMES)} pictures in {FOLDER}", flush=True)
        await busy
        if stay:
            await asyncio.Event().wait()


# --- the cluster ------------------------------------------------------------------------------------------------------


async def _tell_the_story(api: ApiClient) -> None:
    begun = time.monotonic()

    async def at(seconds: float) -> None:
        await asyncio.sleep(max(0.0, begun + seconds - time.monotonic()))

    await _create(api, lab.RUNNING)
    await at(BORROWING)
    await _create(api, lab.BORROWING)
    await at(WAITING)
    await _create(api, lab.WAITING)
    await _hold(api, *lab.HELD)
    await at(RECLAIMING)
    await _create(api, [lab.RECLAIMING])
    await at(URGENT)
    await _create(api, [lab.URGENT])
    await at(FAILING)
    await fail_node(api, await _node_of(api, *lab.SWAPPED))
    await api.patch(kube.NODES, None, lab.CORDONED, {"spec": {"unschedulable": True}})
    await at(PICTURES)


async def _create(api: ApiClient, objects: Iterable[Json]) -> None:
    for obj in objects:
        known = BY_KIND[obj["kind"]]._replace(version=obj["apiVersion"].rpartition("/")[2])
        for last in (False,) * 20 + (True,):
            try:
                await api.create(known, obj["metadata"].get("namespace"), obj)
                break
            except Exception:  # webhooks and caches that come up
                if last:
                    raise
                await asyncio.sleep(1)


async def _hold(api: ApiClient, namespace: str, name: str) -> None:
    from gangline.console.commands.change.hold import held

    for _ in range(30):
        found = (await api.list(kube.WORKLOADS, namespace)).items
        if any(ref["name"] == name for obj in found for ref in obj["metadata"].get("ownerReferences", ())):
            break
        await asyncio.sleep(0.5)
    print(await held(api, namespace, name), flush=True)


async def _node_of(api: ApiClient, namespace: str, name: str) -> str:
    pods = (await api.list(kube.PODS, namespace)).items
    return next(pod["spec"]["nodeName"] for pod in pods if pod["metadata"]["name"].startswith(f"{name}-"))


async def _small_jobs(api: ApiClient) -> None:
    for job in lab.small():
        await _create(api, [job])
        await asyncio.sleep(SMALL)


# --- the browser ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        await started.close()


async def _pictures(browser: Browser, link: str, wanted: list[Shot]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    root = link.partition("enter?")[0]
    context = await browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce")
    page = await context.new_page()
    await page.goto(link)
    await page.wait_for_timeout(3000)
    for shot in wanted:
        for theme in THEMES:
            await page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            await _picture(page, root, shot, theme)
    await context.close()


async def _picture(page: Page, root: str, shot: Shot, theme: str) -> None:
    now = time.time()
    await page.goto(f"{root}{shot.path.format(begin=round(now - BEFORE), story=round(now - STORY))}")
    if shot.key:
        await page.get_by_role("application").press(shot.key)
    if shot.button:
        await page.get_by_role("button", name=shot.button).click()
    await expect(page.locator("main").get_by_text(shot.complete).first).to_be_visible(timeout=COMPLETE * 1000)
    await page.wait_for_timeout(2500)  # answers beside the live rows
    taken = await page.screenshot(animations="disabled", caret="hide")
    shot.file(theme).write_bytes(png.reduced(taken) if len(taken) > LARGE else taken)
    print(f"  {shot.file(theme).name}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
