"""The dashboard's pages in a browser, on a live cluster: as an administrator, and as a user of one namespace."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import ClientSession, CookieJar
from playwright.async_api import Browser, Error, Page, Response, async_playwright, expect
from tests.cluster import harness
from tests.cluster.conftest import System
from tests.cluster.test_answers import HERE, SECRET, Person, busy, job, people

from gangline.console.commands.ui import examined, verbs
from gangline.control.process.operator_process import ForecastOptions
from gangline.kube import config
from gangline.kube import resources as kube
from gangline.ui import front_end, pages
from gangline.ui.app import Dashboard
from gangline.ui.serving import Address, serving
from gangline.ui.sessions import LaptopSessions, Sessions, TokenSessions

__all__ = ["people"]

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
#: each page by its path, and its heading
PAGES = {
    "now": "Now",
    "timeline": "Timeline",
    "jobs": "Jobs",
    "queues": "Queues",
    "nodes": "Nodes",
    "trust": "Trust",
    "use": "Use",
    "operator": "Operator",
}
AXE = Path(__file__).parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed (Debian and Ubuntu: apt install chromium)")
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        await started.close()


@pytest.fixture
async def cluster(system: System, api: harness.Api, people: dict[str, Person], tmp_path: Path) -> dict[str, Person]:
    """Two teams share a queue: see `test_answers.busy`."""
    forecasts = ForecastOptions(str(tmp_path / "history.db"), tmp_path / "model.gz", use_model=False)
    record = tmp_path / "audit.jsonl"
    system.operator("dashboard", visibility=HERE, forecasts=forecasts, audit=record).wait_ready()
    await busy(api)
    return people


@asynccontextmanager
async def dashboard(kept: Sessions) -> AsyncIterator[str]:
    try:
        built = pages.Pages(front_end.built())
    except front_end.NotBuiltError as error:
        pytest.skip(str(error))
    made = Dashboard(kept, built, verbs(), "default", "test", own=isinstance(kept, LaptopSessions), doctor=examined)
    async with serving(made, Address("127.0.0.1", 0)) as root:
        yield root


class Visit:
    """A person's visit: what the browser was sent, and what went wrong in it."""

    def __init__(self, page: Page, root: str) -> None:
        self.page, self.root = page, root
        self.troubles: list[str] = []
        self._bodies: list[asyncio.Future[bytes]] = []
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("console", lambda line: self.troubles.append(line.text) if line.type == "error" else None)
        page.on("response", lambda response: self._bodies.append(asyncio.ensure_future(self._read(response))))

    async def open(self, path: str) -> None:
        await self.page.goto(f"{self.root}/{path}")

    async def sees(self, text: str | re.Pattern[str]) -> None:
        await expect(self.page.get_by_text(text).first).to_be_visible(timeout=30_000)

    async def bytes_of_answers(self) -> bytes:
        """All that came but streams, which go on."""
        return b"\n".join(await asyncio.gather(*self._bodies))

    async def _read(self, response: Response) -> bytes:
        if "/api/live" in response.url or response.status >= 300:
            return b""
        try:
            return await response.body()
        except Error:  # the browser has left the page before it had all of the answer
            return b""

    async def accessible(self) -> list[Json]:
        """What axe finds wrong with the page."""
        await self.page.evaluate(AXE.read_text())
        found = await self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            {"id": row["id"], "nodes": [each["html"][:200] for each in row["nodes"][:3]]} for row in found["violations"]
        ]


@asynccontextmanager
async def visiting(browser: Browser, root: str, **options: Any) -> AsyncIterator[Visit]:
    context = await browser.new_context(viewport={"width": 1440, "height": 900}, **options)
    visit = Visit(await context.new_page(), root)
    yield visit
    await context.close()


@asynccontextmanager
async def administrator(system: System, browser: Browser, **options: Any) -> AsyncIterator[Visit]:
    """The visit of an administrator, who has opened the link of `gangline ui`."""
    kept = LaptopSessions(config.load(system.kubeconfig))
    async with dashboard(kept) as root, visiting(browser, root, **options) as visit:
        await visit.open(f"enter?key={kept.link_secret}")
        yield visit


def token_of(person: Person) -> str:
    return yaml.safe_load(person.kubeconfig.read_text())["users"][0]["user"]["token"]


async def test_an_administrator_sees_every_page(system: System, cluster: dict[str, Person], browser: Browser) -> None:
    async with administrator(system, browser) as visit:
        await visit.sees(f"job/{SECRET}-waits")
        for path, heading in PAGES.items():
            await visit.open(path)
            await expect(visit.page.get_by_role("heading", level=1)).to_have_text(re.compile(heading), timeout=30_000)
            assert visit.troubles == [], path
        await visit.open("jobs")
        await visit.sees(f"job/{SECRET}-runs")
        await visit.page.get_by_role("link", name="job/waits", exact=True).click()
        await visit.sees(re.compile("more GPUs needed|insufficient unused quota"))
        assert visit.troubles == []


async def test_a_user_sees_her_namespace_and_no_other_name(
    system: System, cluster: dict[str, Person], browser: Browser
) -> None:
    kept = TokenSessions(config.load(system.kubeconfig, as_user=False), secure=False)
    async with dashboard(kept) as root, visiting(browser, root) as visit:
        lines = await _raw_events(visit)
        await visit.open("jobs")
        await visit.page.get_by_role("textbox", name="Token").fill(token_of(cluster["alice"]))
        await visit.page.get_by_role("button", name="Sign in").click()
        await visit.sees("job/waits")
        for path, heading in PAGES.items():
            await visit.open(path)
            await expect(visit.page.get_by_role("heading", level=1)).to_have_text(re.compile(heading), timeout=30_000)
        await visit.open("jobs/default/job/waits")
        await visit.sees(re.compile("hidden-[0-9a-f]{8}"))
        assert SECRET.encode() not in await visit.bytes_of_answers()
        assert SECRET not in await visit.page.content()
        received = await lines()
        assert "hidden-" in received and SECRET not in received


async def _raw_events(visit: Visit) -> Any:
    """Keeps all that the pages' event streams are sent. Returns a function that returns it."""
    await visit.page.context.add_init_script(
        """
        const Real = EventSource;
        window.EventSource = class extends Real {
          constructor(...given) {
            super(...given);
            for (const name of ['snapshot', 'change', 'beat', 'trouble'])
              this.addEventListener(name, (event) =>
                sessionStorage.setItem('received', (sessionStorage.getItem('received') ?? '') + event.data));
          }
        };
        """
    )

    async def received() -> str:
        return await visit.page.evaluate("sessionStorage.getItem('received')")

    return received


#: an answer, where its rows are, and the type that the pages have of each
TYPED = {
    "api/session": ("", "Session"),
    "api/past": ("items", "PastRun"),
    "api/audits": ("items", "Audit"),
    "api/accuracy": ("", "Accuracy"),
    "api/events": ("items", "JobEvent"),
    "api/attempts": ("items", "Attempt"),
    "api/usage?by=clusterQueue": ("items", "UsageSum"),
    "api/capacity": ("items", "PlannedCapacity"),
    "api/decisions": ("items", "DecisionRow"),
    "api/check": ("items", "RecordCheck"),
    "api/doctor": ("items", "DoctorFinding"),
    "api/operator": ("", "OperatorState"),
    "api/annotations?keys=gangline.io/expected-runtime": ("items", "Annotated"),
    "api/job/default/job/waits": ("", "JobAnswer"),
    "api/job/default/job/waits/remedies": ("", "Remedies"),
    "api/job/default/job/waits/victims": ("", "Victims"),
    "api/job/default/job/runs/pods": ("pods", "Pod"),
    "api/job/default/job/runs/attempts": ("attempts", "Attempt"),
    "api/job/default/job/runs/events": ("events", "KubeEvent"),
    "api/moves/gpu-0": ("gangs", "Move"),
}
#: rows of the stream by table
STREAMED = {"jobs": "Job", "queues": "Queue", "nodes": "Node", "runs": "Run"}
#: of which a quiet cluster has none
NONE_YET = {"api/past", "api/moves/gpu-0"}


def fields_of_types() -> dict[str, set[str]]:
    """The fields that each type of the front end requires, by the type's name."""
    text = (Path(__file__).parents[2] / "ui" / "src" / "api" / "types.ts").read_text()
    found: dict[str, set[str]] = {}
    for name, body in re.findall(r"^export interface (\w+) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        found[name] = set(re.findall(r"^  (\w+):", body, re.MULTILINE))
    return found


async def test_answers_have_the_fields_that_the_pages_read(system: System, cluster: dict[str, Person]) -> None:
    kept = LaptopSessions(config.load(system.kubeconfig))
    types = fields_of_types()
    lacking: dict[str, list[str]] = {}
    async with dashboard(kept) as root, ClientSession(cookie_jar=CookieJar(unsafe=True)) as http:
        async with http.get(f"{root}/enter?key={kept.link_secret}", allow_redirects=False) as answer:
            assert answer.status == 303
        for path, (where, name) in TYPED.items():
            async with http.get(f"{root}/{path}") as answer:
                body = await answer.json()
                assert answer.status == 200, (path, body)
            rows = body[where] if where else [body]
            assert rows or path in NONE_YET, path
            for row in rows:
                lacking |= {path: sorted(missing)} if (missing := types[name] - row.keys()) else {}
        async with http.get(f"{root}/api/live") as answer, asyncio.timeout(60):
            while not (line := await answer.content.readline()).startswith(b"data: "):
                assert line, "the stream ended"
        for table, rows in json.loads(line[6:])["rows"].items():
            for row in rows.values():
                lacking |= {table: sorted(missing)} if (missing := types[STREAMED[table]] - row.keys()) else {}
    assert lacking == {}


async def test_a_wrong_token_is_refused_and_an_expired_session_asks_again(
    system: System, cluster: dict[str, Person], browser: Browser
) -> None:
    kept = TokenSessions(config.load(system.kubeconfig, as_user=False), secure=False)
    async with dashboard(kept) as root, visiting(browser, root) as visit:
        await visit.open("queues")
        await visit.page.get_by_role("textbox", name="Token").fill("not-a-token-of-this-cluster")
        await visit.page.get_by_role("button", name="Sign in").click()
        await visit.sees(re.compile("does not accept"))
        await visit.page.get_by_role("textbox", name="Token").fill(token_of(cluster["alice"]))
        await visit.page.get_by_role("button", name="Sign in").click()
        await expect(visit.page.get_by_role("heading", level=1)).to_have_text(re.compile("Queues"), timeout=30_000)
        assert visit.page.url.endswith("/queues") or "/queues?" in visit.page.url, "the page that she asked for"
        await visit.page.context.clear_cookies()
        await visit.page.reload()
        await expect(visit.page.get_by_role("textbox", name="Token")).to_be_visible()


async def test_pages_are_accessible_in_both_themes(
    system: System, cluster: dict[str, Person], browser: Browser
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: `make ui` installs it")
    async with administrator(system, browser, bypass_csp=True) as visit:
        wrong: dict[str, list[Json]] = {}
        for theme in ("light", "dark"):
            await visit.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            date = in_hours(24)
            dated = {f"queues?at={date}": "Queues", f"nodes?at={date}": "Nodes", "queues?at=never": "Queues"}
            for path, heading in {**PAGES, **dated, "jobs/default/job/waits": "waits"}.items():
                await visit.open(path)
                await expect(visit.page.get_by_role("heading", level=1)).to_have_text(
                    re.compile(heading), timeout=30_000
                )
                await visit.page.wait_for_timeout(500)
                if found := await visit.accessible():
                    wrong[f"{path}, {theme}"] = found
        assert wrong == {}


async def test_a_job_is_held_in_the_browser(
    system: System, api: harness.Api, cluster: dict[str, Person], browser: Browser
) -> None:
    async with administrator(system, browser) as visit:
        await visit.open("jobs/default/job/waits")
        await visit.page.get_by_role("button", name=re.compile("^Hold")).click()
        await visit.page.get_by_role("dialog").get_by_role("button", name=re.compile("^Hold")).click()

        async def is_held() -> bool:
            found = await api.workload_of("waits")
            return found is not None and found["spec"].get("active") is False

        await api.until(is_held, "the job is held")
        await visit.sees("Inactive")


async def test_a_question_in_the_timeline_has_the_commands_answer(
    system: System, cluster: dict[str, Person], browser: Browser
) -> None:
    async with administrator(system, browser) as visit:
        page = visit.page
        await visit.open("timeline?span=86400")
        await page.get_by_role("searchbox", name="Find a job").fill("job-waits")
        await visit.sees("1 found")  # as soon as the plan is there
        await page.get_by_role("searchbox", name="Find a job").press("Enter")
        await page.get_by_role("application").focus()
        await page.keyboard.press("w")
        await page.get_by_role("textbox", name="Runs for").fill("30m")
        await page.get_by_role("button", name="Simulate").click()
        await expect(page.locator(".tl-outcome code")).to_be_visible(timeout=60_000)
        shown = await page.locator(".tl-outcome").inner_text()
        command = await page.locator(".tl-outcome code").inner_text()
        assert visit.troubles == []
    asked = ["whatif", "waits", "--time", "30m", "-o", "json"]
    answer = json.loads((await Person(system.kubeconfig).run(*asked)).stdout)
    assert command == answer["command"]
    for row in (*answer["gains"], *answer["loses"]):
        assert row["job"] in shown


WHAT_IF: dict[str, tuple[str, dict[str, str], list[str]]] = {
    "quota": ("a queue’s quota", {"GPUs": "12"}, ["--quota", "shared", "--flavor", "gpu", "--gpus", "12"]),
    "drain": ("a node were drained", {"Node": "gpu-0"}, ["--drain", "gpu-0"]),
}


@pytest.mark.parametrize("change", WHAT_IF)
async def test_a_question_about_a_quota_and_a_node_has_the_commands_answer(
    system: System, cluster: dict[str, Person], browser: Browser, change: str
) -> None:
    item, fields, options = WHAT_IF[change]
    async with administrator(system, browser) as visit:
        page = visit.page
        await visit.open("timeline?group=nodes")
        await page.get_by_role("button", name="What if …").press("Enter")
        await page.get_by_role("menuitem", name=re.compile(item)).press("Enter")
        form = page.locator("form.tl-of-quota, form.tl-of-node")
        for label, value in fields.items():
            control = form.get_by_label(label)
            if label == "Node":
                await control.select_option(value)
            else:
                await control.fill(value)
                await control.press("Tab")
        await form.get_by_role("button", name="Simulate").press("Enter")
        await expect(page.locator(".tl-outcome code")).to_be_visible(timeout=60_000)
        shown = await page.locator(".tl-outcome").inner_text()
        command = await page.locator(".tl-outcome code").inner_text()
        assert visit.troubles == []
    answer = json.loads((await Person(system.kubeconfig).run("whatif", *options, "-o", "json")).stdout)
    assert command == answer["command"]
    for row in (*answer["gains"], *answer["loses"]):
        assert row["job"] in shown
    if change == "quota":
        assert answer["gains"], "those that wait start earlier"


@pytest.fixture
async def sprint_and_upkeep(api: harness.Api) -> AsyncIterator[None]:
    """From in a day on, for a day: ClusterQueue `shared` has 3 GPUs, and node gpu-0 is in maintenance."""
    change = {"flavor": "gpu", "resource": "nvidia.com/gpu", "nominalQuota": 3}
    window = {"start": in_hours(24), "end": in_hours(48)}
    plan = {"clusterQueue": "shared", "overrides": [{"name": "sprint", "window": window, "quotas": [change]}]}
    upkeep = {"window": window, "nodes": {"names": ["gpu-0"]}}
    for kind, name, spec in (("QuotaPlan", "sprints", plan), ("Reservation", "upkeep", upkeep)):
        meta = {"name": name}
        await api.create({"apiVersion": "gangline.io/v1alpha1", "kind": kind, "metadata": meta, "spec": spec})
    yield
    await api.client.delete(kube.QUOTA_PLANS, None, "sprints")
    await api.client.delete(kube.RESERVATIONS, None, "upkeep")


def in_hours(hours: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + hours * 3600))


async def test_quotas_and_nodes_are_shown_as_of_a_date(
    system: System, cluster: dict[str, Person], sprint_and_upkeep: None, browser: Browser
) -> None:
    async with administrator(system, browser, timezone_id="Asia/Tokyo") as visit:
        page = visit.page
        await visit.open("queues")
        local = time.strftime("%Y-%m-%dT%H:%M", time.gmtime(time.time() + (36 + 9) * 3600))
        await page.get_by_label("As of").fill(local)
        await expect(page).to_have_url(re.compile(r"at=2\d{3}-"), timeout=30_000)
        await visit.sees("UTC+09:00")
        row = page.get_by_role("row", name=re.compile("shared gpu 3"))
        await expect(row).to_contain_text("sprints: sprint", timeout=30_000)
        date = page.url.partition("at=")[2]
        await visit.open(f"nodes?at={date}")
        await visit.sees("upkeep: maintenance")
        await expect(page.get_by_role("button", name="Now", exact=True)).to_be_visible()
        for wrong, words in (("never", "no date"), (in_hours(-1), "past"), (in_hours(24 * 15), "14 days")):
            await visit.open(f"queues?at={wrong}")
            await visit.sees(re.compile(words))
        await page.get_by_role("button", name="Now", exact=True).click()
        await expect(page).not_to_have_url(re.compile("at="), timeout=30_000)
        assert visit.troubles == []


async def test_the_scrubbed_past_is_the_audit_record_decision_by_decision(
    system: System, api: harness.Api, cluster: dict[str, Person], browser: Browser, tmp_path: Path
) -> None:
    await api.create(job("big", 9, "10m"), job("small", 1, "10m"))
    await api.client.delete(kube.JOBS, "default", "runs", propagation="Background")

    async def small_runs() -> bool:
        found = await api.workload_of("small")
        return found is not None and bool(harness.condition(found, "Admitted"))

    await api.until(small_runs, "the small job has what the cancelled one had")
    await asyncio.sleep(3)  # nothing is decided any more, and all of it is on the disk
    recorded = [
        (kind, fields.get("workload") or fields.get("about"))
        for line in (tmp_path / "audit.jsonl").read_bytes().splitlines()
        if line.startswith(b'{"now":')
        for kind, fields in json.loads(line)["decided"]
    ]
    assert {kind for kind, _ in recorded} >= {"Admit", "ReportPending"} and len(recorded) > 5
    async with administrator(system, browser) as visit:
        page = visit.page
        await visit.open(f"timeline?cursor={time.time() - 1:.0f}")
        current = page.locator(".tl-decisions li[aria-current=true]")
        shown: list[tuple[str, str]] = []
        number = "none is chosen"
        for expected in reversed(recorded):
            await page.get_by_role("application").press("[")
            await expect(current).not_to_have_attribute("data-number", number, timeout=30_000)
            await expect(current).to_have_attribute("data-decision", expected[0], timeout=30_000)
            number = await current.get_attribute("data-number") or ""
            answer = await page.evaluate(f"fetch('api/decision/{number}').then((answer) => answer.json())")
            key = f"{answer['decision']['namespace']}/{answer['decision']['workload']}"
            shown.append((answer["decision"]["decision"], key))
            assert answer["same"] is True, answer
            assert f"{expected[0]} {expected[1]}" in answer["recorded"]
        assert shown == recorded[::-1]
        await page.get_by_role("button", name="What the engine knew").click()
        await visit.sees(re.compile("[Dd]ecided again"))
        assert visit.troubles == []


async def test_what_a_user_writes_is_text(
    system: System, api: harness.Api, cluster: dict[str, Person], browser: Browser
) -> None:
    written = "<img src=x onerror=alert(1)>"
    kept = LaptopSessions(config.load(system.kubeconfig))
    link = f"enter?key={kept.link_secret}"
    await api.create(job("evil", 4, written))  # a warning repeats the hint, which is none
    async with dashboard(kept) as root, visiting(browser, root) as visit:
        visit.page.on("dialog", lambda dialog: visit.troubles.append(dialog.message))
        await visit.open(link)
        await visit.open("jobs/default/job/evil")
        await visit.sees(written)
        for path in ("now", "jobs", "timeline", "trust"):
            await visit.open(path)
            await expect(visit.page.get_by_role("heading", level=1)).to_be_attached(timeout=30_000)
            assert await visit.page.locator("img").count() == 0
        assert visit.troubles == []


async def test_a_page_says_that_nobody_leads_and_recovers_by_itself(
    system: System, api: harness.Api, people: dict[str, Person], browser: Browser, tmp_path: Path
) -> None:
    forecasts = ForecastOptions(str(tmp_path / "history.db"), tmp_path / "model.gz", use_model=False)
    first = system.operator("leads-first", leader_election=True, visibility=HERE, forecasts=forecasts).wait_ready()
    await busy(api)
    async with administrator(system, browser) as visit:
        await visit.open("jobs")
        await visit.sees("job/waits")
        first.kill()
        await visit.sees("No operator answers")
        await expect(visit.page.locator(".stale-rows")).to_be_visible()
        await visit.sees("job/waits")  # what was known stays on the screen
        later = await visit.page.context.new_page()  # one that is opened meanwhile says so, too
        await later.goto(f"{visit.root}/queues")
        await expect(later.get_by_text("No operator answers").first).to_be_visible(timeout=30_000)
        second = system.operator("leads-second", leader_election=True, visibility=HERE, forecasts=forecasts)
        second.wait_ready()
        await api.create(job("after-the-change", 1, "10m"))
        await expect(visit.page.get_by_text("job/after-the-change").first).to_be_visible(timeout=60_000)
        for page in (visit.page, later):
            await expect(page.get_by_text("No operator answers")).to_have_count(0, timeout=60_000)
            await expect(page.locator(".stale-rows")).to_have_count(0, timeout=60_000)
        await expect(later.get_by_role("heading", level=1)).to_have_text(re.compile("Queues"))


async def test_each_page_is_used_by_keyboard_alone(
    system: System, cluster: dict[str, Person], browser: Browser
) -> None:
    """The pointer is never used: pages by their keys, controls by Tab, and whatever has the focus shows it."""
    async with administrator(system, browser) as visit:
        page = visit.page
        await visit.sees(f"job/{SECRET}-waits")
        for key, heading in zip("wljqntuo", PAGES.values(), strict=True):
            await page.keyboard.press("g")
            await page.keyboard.press(key)
            await expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(heading), timeout=30_000)
            unreached, unseen = await _walked(visit)
            assert (unreached, unseen) == ([], []), heading
        # a job: found, opened, and held, without a pointer
        await page.keyboard.press("g")
        await page.keyboard.press("j")
        await visit.sees("job/waits")
        await page.keyboard.press("/")
        await page.keyboard.type("waits")
        await expect(page).to_have_url(re.compile("q=waits"))
        await visit.sees("job/waits")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile("/jobs/[^/?]+/job/[^/?]+"), timeout=30_000)
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        assert visit.troubles == []


#: a control's kind and name; marks it as reached, and says whether it shows that it has the focus
FOCUSED = """() => {
  const element = document.activeElement
  if (!element || element === document.body) return null
  const again = element.dataset.walked === 'yes' && !(element.type === 'datetime-local' && window.walkedLast === element)
  window.walkedLast = element // Tab goes from part to part of a date
  element.dataset.walked = 'yes'
  const style = getComputedStyle(element), box = element.getBoundingClientRect()
  const ring = getComputedStyle(element, '::after')
  const framed = ring.content !== 'none' && ring.borderTopStyle === 'solid'
  const visible = box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight
  const name = element.getAttribute('aria-label') ?? element.textContent.trim().slice(0, 40)
  return {
    again,
    name: `${element.tagName.toLowerCase()} ${name}`,
    seen: visible && (style.outlineStyle !== 'none' || style.boxShadow !== 'none' || framed),
    group: Boolean(element.closest('[role=radiogroup], [role=toolbar], [role=tablist]')),
  }
}"""
#: the controls that were not reached. Of a group one is, and the arrows lead to the others.
UNREACHED = """() => {
  const controls = 'a[href], button, input, select, textarea, summary, [role=button]'
  const left = [...document.querySelectorAll(controls)].filter((each) => each.dataset.walked !== 'yes' && !each.disabled)
  const shown = left.filter((each) => each.checkVisibility({visibilityProperty: true}))
  const grouped = (each) => {
    const group = each.closest('[role=radiogroup], [role=toolbar], [role=tablist]')
    return group !== null && group.querySelector('[data-walked=yes]') !== null
  }
  const free = shown.filter((each) => !each.closest('[inert], [aria-hidden=true]') && !grouped(each))
  return free.map((each) => `${each.tagName.toLowerCase()} ${each.getAttribute('aria-label') ?? each.textContent.trim()}`)
}"""


async def _walked(visit: Visit) -> tuple[list[str], list[str]]:
    """What Tab does not reach of the page's controls, and what has the focus without showing it."""
    page = visit.page
    await page.wait_for_timeout(500)
    await page.evaluate(
        """() => {
          document.activeElement?.blur?.()
          for (const each of document.querySelectorAll('[data-walked]')) delete each.dataset.walked
        }"""
    )
    unseen: list[str] = []
    for _ in range(400):
        await page.keyboard.press("Tab")
        focused = await page.evaluate(FOCUSED)
        if focused is None:
            continue  # the focus has left the page, for the browser's own controls
        if focused["again"]:
            break
        if not focused["seen"]:
            unseen.append(focused["name"])
    return await page.evaluate(UNREACHED), unseen
