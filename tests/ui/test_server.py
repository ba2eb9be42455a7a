"""The dashboard's server: who is let in, what each sees, and what other sites and odd requests can't do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientResponse, ClientSession, CookieJar
from tests.builders import clusters
from tests.ui.upstream import Cluster

from gangline.control.answers.api import live_stream
from gangline.control.audit import audit_log, decision_index, replay_process
from gangline.control.audit.audit_log import AuditLog, RecordedEngine, Round
from gangline.control.audit.audit_reader import AuditReader
from gangline.engine import model
from gangline.kube.errors import Forbidden
from gangline.kube.tokens import FixedToken
from gangline.ui import app as ui_app
from gangline.ui import live, sessions
from gangline.ui.app import Dashboard, RefusedError
from gangline.ui.pages import BASE, Pages
from gangline.ui.serving import Address, serving
from gangline.ui.sessions import LaptopSessions, TokenSessions

Json = dict[str, Any]
INDEX = f'<!doctype html>{BASE}<script type="module" src="./assets/a.js"></script>'


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text(INDEX)
    (tmp_path / "assets" / "a.js").write_text("export {}")
    return Pages(tmp_path)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(clusters.busy().answers()).serving() as found:
        yield found


class Verbs:
    """In place of the commands' functions."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    async def hold(self, client: Any, namespace: str, name: str, *, dry_run: bool) -> str:
        self.done.append((namespace, name, dry_run, (await client.login.headers())["Authorization"]))
        if name == "job/runs":
            raise RefusedError("job/runs runs: to hold it would stop it")
        if name == "job/foreign":
            raise Forbidden(403, "Forbidden", "you may not")
        return f"{name} is held"

    async def move(self, client: Any, namespace: str, name: str, queue: str, *, dry_run: bool) -> str:
        return f"{name} moves to {queue}"


class Browser:
    """A browser with its cookies, at one dashboard."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.csrf = ""
        self._http = ClientSession(cookie_jar=CookieJar(unsafe=True))

    async def ask(self, method: str, path: str, *, csrf: str | None = None, **more: Any) -> tuple[int, Json]:
        headers = {"X-Gangline-Csrf": self.csrf if csrf is None else csrf, **more.pop("headers", {})}
        async with self._http.request(
            method, self.root + path, headers=headers, allow_redirects=False, **more
        ) as answer:
            body = await answer.read()
            return answer.status, orjson.loads(body) if body[:1] in (b"{", b"[") else {"text": body.decode()}

    async def get(self, path: str, **more: Any) -> tuple[int, Json]:
        return await self.ask("GET", path, **more)

    async def sign_in(self, token: str) -> tuple[int, Json]:
        status, body = await self.ask("POST", "/api/session", csrf="login", json={"token": token})
        if status == 200:
            self.csrf = (await self.get("/api/session"))[1]["csrf"]
        return status, body

    @asynccontextmanager
    async def live(self, namespace: str = "") -> AsyncIterator[Events]:
        async with self._http.get(f"{self.root}/api/live", params={"namespace": namespace}) as answer:
            yield Events(answer)

    def cookies(self) -> list[Any]:
        return list(self._http.cookie_jar)

    async def close(self) -> None:
        await self._http.close()


class Events:
    """The server-sent events of an answer."""

    def __init__(self, answer: ClientResponse) -> None:
        self.answer = answer
        self.text = b""

    async def next(self, *wanted: str) -> tuple[str, Json]:
        name = ""
        async with asyncio.timeout(30):
            while line := await self.answer.content.readline():
                self.text += line
                if line.startswith(b"event: "):
                    name = line[7:].strip().decode()
                elif line.startswith(b"data: ") and name in wanted:
                    return name, orjson.loads(line[6:])
        raise AssertionError("the stream ended")


@asynccontextmanager
async def browsing(kept: Any, pages: Pages, verbs: Verbs | None = None, **more: Any) -> AsyncIterator[Browser]:
    done = verbs or Verbs()
    dashboard = Dashboard(kept, pages, {"hold": done.hold, "move": done.move}, cluster="test", **more)
    async with serving(dashboard, Address("127.0.0.1", 0)) as root:
        browser = Browser(root)
        try:
            yield browser
        finally:
            await browser.close()


def by_token(cluster: Cluster) -> TokenSessions:
    return TokenSessions(cluster.login, secure=False)


# --- pages ------------------------------------------------------------------------------------------------------------


async def test_every_path_is_a_page_and_pages_are_bounded(cluster: Cluster, pages: Pages) -> None:
    async with browsing(by_token(cluster), pages) as browser, ClientSession() as http:
        for path in ("/", "/jobs", "/jobs/ml/job/train?tab=why", "/assets/../index.html"):
            async with http.get(browser.root + path) as answer:
                assert answer.status == 200 and '<base href="/">' in await answer.text()
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy and "unsafe" not in policy
                assert answer.headers["X-Frame-Options"] == "DENY"
        async with http.get(f"{browser.root}/assets/a.js") as answer:
            assert answer.headers["Content-Type"].startswith("text/javascript")
            assert "immutable" in answer.headers["Cache-Control"]
        async with http.get(f"{browser.root}/api/nothing") as answer:
            assert answer.status == 404 and answer.headers["Cache-Control"] == "no-store"


def test_the_base_is_where_a_proxy_says(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(INDEX)
    assert b'<base href="/gangline/">' in Pages(tmp_path, "/gangline/").answer("queues").body


# --- who is let in ----------------------------------------------------------------------------------------------------


async def test_a_token_is_let_in_if_the_api_server_accepts_it(cluster: Cluster, pages: Pages) -> None:
    async with browsing(by_token(cluster), pages) as browser:
        assert await browser.get("/api/session") == (401, {"error": "Nobody is signed in.", "login": ["token"]})
        for wrong in ("nobody-token", "", "with space", "é", "x" * 20_000):
            status, body = await browser.sign_in(wrong)
            assert status in (400, 401) and body["error"]
        assert not browser.cookies()
        assert (await browser.sign_in("jane-token"))[0] == 200
        (cookie,) = browser.cookies()
        assert cookie["httponly"] and cookie["samesite"] == "strict"
        status, body = await browser.get("/api/session")
        assert (status, body["user"], body["all"], body["namespaces"]) == (200, "jane", False, [])
        assert (await browser.ask("DELETE", "/api/session"))[0] == 200
        assert (await browser.get("/api/session"))[0] == 401


async def test_a_long_token_is_kept_in_several_cookies(cluster: Cluster, pages: Pages) -> None:
    long = "x" * 8000
    cluster.tokens[long] = "admin"
    async with browsing(by_token(cluster), pages) as browser:
        assert (await browser.sign_in(long))[0] == 200
        assert len(browser.cookies()) == 3
        assert (await browser.get("/api/session"))[1]["all"] is True
        assert (await browser.sign_in("jane-token"))[0] == 200
        assert (await browser.get("/api/session"))[1]["user"] == "jane", "nothing is left of the longer one"


async def test_over_tls_alone_unless_told_otherwise(cluster: Cluster, pages: Pages) -> None:
    async with (
        browsing(TokenSessions(cluster.login), pages) as browser,
        browser._http.post(
            f"{browser.root}/api/session", json={"token": "jane-token"}, headers={"X-Gangline-Csrf": "login"}
        ) as answer,
    ):
        (cookie,) = answer.headers.getall("Set-Cookie")[:1]
        assert cookie.startswith("__Host-gangline=jane-token;") and "Secure" in cookie and "HttpOnly" in cookie


async def test_a_laptop_lets_in_the_browser_with_the_link_once(cluster: Cluster, pages: Pages) -> None:
    login = cluster.login
    login.tokens = FixedToken("admin-token")
    kept = LaptopSessions(login)
    link = f"/enter?key={kept.link_secret}"
    async with browsing(kept, pages, own=True) as browser:
        assert (await browser.get("/enter?key=guess"))[0] == 403
        assert (await browser.get("/api/session"))[0] == 401
        assert (await browser.get(link))[0] == 303
        assert (await browser.get("/api/session"))[1]["user"] == "admin"
        stranger = Browser(browser.root)
        assert (await stranger.get(link))[0] == 403 and (await stranger.get("/api/session"))[0] == 401
        await stranger.close()
        # a name of another site that leads to this machine
        assert (await browser.get("/", headers={"Host": "evil.example:80"}))[0] == 421
        assert (await browser.sign_in("jane-token"))[0] == 400


# --- what other sites can't do ----------------------------------------------------------------------------------------


async def test_a_cookie_without_the_header_changes_nothing(cluster: Cluster, pages: Pages) -> None:
    verbs = Verbs()
    async with browsing(by_token(cluster), pages, verbs) as browser:
        await browser.sign_in("admin-token")
        hold = {"verb": "hold", "targets": [{"namespace": "ml", "kind": "Job", "name": "next"}]}
        for csrf in ("", "login", "0" * 32):
            for method, path, body in (
                ("POST", "/api/actions", hold),
                ("POST", "/api/whatif", {"namespace": "ml", "job": {}}),
                ("DELETE", "/api/session", None),
            ):
                assert (await browser.ask(method, path, csrf=csrf, json=body))[0] == 403, (path, csrf)
        assert not verbs.done
        stranger = Browser(browser.root)
        assert (await stranger.ask("POST", "/api/session", csrf="", json={"token": "admin-token"}))[0] == 403
        assert (await stranger.ask("POST", "/api/actions", csrf=browser.csrf, json=hold))[0] == 401
        await stranger.close()


# --- live rows --------------------------------------------------------------------------------------------------------


async def test_all_who_look_with_the_same_rights_share_one_watch(cluster: Cluster, pages: Pages) -> None:
    async with browsing(by_token(cluster), pages) as browser:
        await browser.sign_in("admin-token")
        async with browser.live() as first, browser.live() as second:
            seen = [(await each.next("snapshot"))[1] for each in (first, second)]
            assert seen[0]["rows"] == seen[1]["rows"]
            assert {row["jobName"] for row in seen[0]["rows"]["jobs"].values()} == {"runs", "next", "last"}
            await first.next("beat", "change")
        watches = [path for path in cluster.requests if path.endswith("/liverows")]
        assert [cluster.requests[path] for path in watches] == [1]


async def test_another_namespaces_names_never_reach_the_browser(cluster: Cluster, pages: Pages) -> None:
    cluster.lists["jane"] = {"other"}
    async with browsing(by_token(cluster), pages) as browser:
        await browser.sign_in("jane-token")
        async with browser.live() as events:
            _, body = await events.next("snapshot")
            assert len(body["rows"]["jobs"]) == 3 and all(row["hidden"] for row in body["rows"]["jobs"].values())
            for name in (b'"next"', b'"last"', b"gpujob/", b'"ml"'):
                assert name not in events.text
        status, body = await browser.get("/api/job/ml/gpujob/next")
        assert status == 403 and "ml" in body["error"]


async def test_a_lost_right_and_an_expired_token_are_said_while_the_page_is_open(
    cluster: Cluster, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_stream, "RIGHTS", 0.05)
    monkeypatch.setattr(live_stream, "BEAT", 0.02)
    monkeypatch.setattr(live, "REFUSED_PAUSE", 0.05)
    async with browsing(by_token(cluster), pages) as browser:
        await browser.sign_in("jane-token")
        async with browser.live("ml") as events:
            _, body = await events.next("snapshot")
            assert not any(row["hidden"] for row in body["rows"]["jobs"].values())
            cluster.lists["jane"] = set()
            _, body = await events.next("snapshot")
            assert all(row["hidden"] for row in body["rows"]["jobs"].values())
            cluster.may_watch = False
            _, body = await events.next("trouble")
            assert body["kind"] == "Forbidden"
            cluster.may_watch = True
            await events.next("snapshot")
            cluster.may_watch = False
            cluster.tokens.clear()
            while body["kind"] != "Expired":
                _, body = await events.next("trouble")
        assert (await browser.get("/api/rights?namespace=ml"))[0] == 401


async def test_a_leader_that_goes_is_said_and_the_next_one_is_found(
    cluster: Cluster, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(live, "LONGEST_PAUSE", 0.05)
    async with browsing(by_token(cluster), pages) as browser:
        await browser.sign_in("admin-token")
        async with browser.live() as events:
            await events.next("snapshot")
            cluster.away = True
            cluster.api.end()  # its streams, as an operator does that ends
            name, body = await events.next("trouble", "snapshot")
            assert (name, body["kind"]) == ("trouble", "NoLeader")
            cluster.api._ending.clear()
            cluster.away = False
            await events.next("snapshot")


async def test_a_browser_that_does_not_read_gets_all_rows_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_WAITING", 3)
    monkeypatch.setattr(live.Feed, "_follow", lambda self: asyncio.sleep(3600))
    feed = live.Feed(None, None, "")  # type: ignore[arg-type]
    events = feed.events()
    feed._synced = True
    first = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    assert b"snapshot" in await first
    for _ in range(5):
        feed._tell(live.event("change", {}))
    message = await anext(events)
    assert message.count(b"event: snapshot") == 1 and message.count(b"event: change") < 3
    await events.aclose()
    assert not feed.watched
    feed.task.cancel()


# --- answers and actions ----------------------------------------------------------------------------------------------


async def test_a_jobs_page_has_its_explanation_and_its_story(cluster: Cluster, pages: Pages) -> None:
    async with browsing(by_token(cluster), pages) as browser:
        await browser.sign_in("jane-token")
        status, body = await browser.get("/api/job/ml/gpujob/next")
        assert status == 200 and body["job"]["jobName"] == "next" and body["why"]["lines"]
        assert set(body) == {"job", "why", "promises", "story"}
        assert (await browser.get("/api/job/ml/gpujob/none"))[0] == 404
        assert (await browser.get("/api/job/ml/gpujob/next/secrets"))[0] == 404
        assert (await browser.get("/api/past?namespace=ml&since=3600"))[0] == 200
        status, body = await browser.get("/api/past?namespace=ml&since=never")
        assert status == 400 and "sinceSeconds" in body["error"]
        assert (await browser.get("/api/past?namespace=..%2F..%2Fsecrets"))[0] == 400
        for limit in ("0", "-1", "many", "1" * 400):
            assert (await browser.get(f"/api/past?namespace=ml&limit={limit}"))[0] == 400


async def test_a_long_list_is_fetched_in_pages(cluster: Cluster, pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui_app, "_PAGE", 1)
    async with browsing(by_token(cluster), pages) as browser:
        await browser.sign_in("admin-token")
        status, body = await browser.get("/api/audits?limit=2")
        assert status == 200 and len(body["items"]) == 2 and not body["more"]
        status, body = await browser.get("/api/audits?limit=1")
        assert len(body["items"]) == 1 and body["more"]


@pytest.fixture
def record(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AuditReader:
    """The operator's record: its engine has decided once, and then evicted one job many times. It is replayed in this process:
    another one of low priority may get no CPU beside other tests.
    """

    async def replayed(work: str, parts: Any, places: Any, within: float) -> Any:
        ranges = [(part.file.descriptor, part.begin, part.end) for part in parts]
        return orjson.loads(
            orjson.dumps(await asyncio.to_thread(replay_process.answer_to, work, ranges, places, within))
        )

    monkeypatch.setattr(replay_process, "_replayed", replayed)
    monkeypatch.setattr(audit_log, "FLUSH_EVERY", 0.002)
    written, answers, now = AuditLog(tmp_path / "audit"), cluster.api._answers, clusters.NOW * 1000
    engine = RecordedEngine(answers.source.engine.settings, written, at=now)
    for fact in answers.source.engine.facts():
        engine.observe(fact)
    engine.decide(now)
    for number in range(10):
        key = "other/secret-job" if number % 2 else clusters.key_of(clusters.busy(), "runs")
        written.add(Round(now, (model.Evict(key, "u", "Preempted", "It had to go"),)))
    written.close()
    reader = AuditReader(written.index, lambda: now)
    answers.source = replace(answers.source, record=reader)
    return reader


async def test_decisions_are_collected_over_pages_and_opened(
    cluster: Cluster, pages: Pages, record: AuditReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_index, "MOST_LOOKED_AT", 2)
    monkeypatch.setattr(ui_app, "_PAGE", 3)
    async with browsing(by_token(cluster), pages) as browser:
        await browser.sign_in("admin-token")
        status, whole = await browser.get("/api/decisions?since=3600&limit=100")
        assert (status, whole["more"], whole["from"], whole["record"]) == (200, False, clusters.NOW, True)
        assert len(whole["items"]) == 10 + len({row["number"] for row in whole["items"] if row["decision"] != "Evict"})
        assert (await browser.get("/api/decisions?since=3600&until=1800"))[1]["items"] == []
        _, few = await browser.get("/api/decisions?limit=4")
        assert few["items"] == whole["items"][:4] and few["more"]
        status, body = await browser.get("/api/decisions?since=60&until=60")
        assert status == 400 and "untilSeconds" in body["error"]
        status, body = await browser.get(f"/api/decision/{whole['items'][0]['number']}")
        assert status == 200 and body["same"]
        assert set(body) == {"decision", "same", "recorded", "repeated", "inputs", "version"}
        assert (await browser.get("/api/decision/7"))[0] == 404
        assert (await browser.get("/api/decision/..%2Foperatorstates"))[0] in (400, 404)
        status, body = await browser.get("/api/check")
        assert status == 200 and body["items"][0]["running"]
        await record.close()
        monkeypatch.setattr(ui_app, "MOST_PAGES", 2)
        _, few = await browser.get("/api/decisions?limit=100")
        assert few["more"] and few["continue"], "what is collected at a time is bounded"


async def test_who_may_not_see_a_namespace_gets_none_of_its_decisions(
    cluster: Cluster, pages: Pages, record: AuditReader
) -> None:
    async with browsing(by_token(cluster), pages) as browser:
        await browser.sign_in("jane-token")
        _, body = await browser.get("/api/decisions?namespace=ml")
        assert body["items"] and all(row["namespace"] == "ml" for row in body["items"])
        _, body = await browser.get("/api/decisions")
        theirs = [row for row in body["items"] if row["hidden"]]
        assert len(theirs) == 5 and b"secret" not in orjson.dumps(body)
        number = theirs[0]["number"]
        for path in (f"/api/decision/{number}?namespace=ml", f"/api/decision/{number}"):
            status, body = await browser.get(path)
            assert status in (403, 404) and b"secret" not in orjson.dumps(body)
        status, body = await browser.get("/api/check")
        assert status == 403 and "recordchecks" in body["error"]


async def test_a_dashboard_of_an_operator_without_a_record_says_so(cluster: Cluster, pages: Pages) -> None:
    async with browsing(by_token(cluster), pages) as browser:
        await browser.sign_in("admin-token")
        _, body = await browser.get("/api/decisions")
        assert body == {"items": [], "more": False, "continue": "", "from": None, "record": False}
        assert (await browser.get("/api/check"))[1] == {"items": []}
        status, body = await browser.get("/api/decision/5")
        assert status == 404 and "keeps no record" in body["error"]


async def test_attempts_sums_and_annotations(cluster: Cluster, pages: Pages) -> None:
    answers = cluster.api._answers
    answers.record = clusters.attempt_record(answers)
    job = "kueue.x-k8s.io/queue-name"
    async with browsing(by_token(cluster), pages) as browser:
        await browser.sign_in("jane-token")
        _, body = await browser.get("/api/attempts?namespace=ml&since=3600&limit=5")
        assert [row["jobName"] for row in body["items"]] == ["runs"] and not body["more"]
        _, body = await browser.get("/api/job/ml/gpujob/runs/attempts")
        assert [(row["attempt"], row["end"]) for row in body["attempts"]] == [(1, "")]
        assert (await browser.get("/api/job/ml/gpujob/none/attempts"))[0] == 404
        _, body = await browser.get("/api/usage?namespace=ml&since=86400&by=flavor&halfLife=3600")
        assert [(row["name"], row["jobs"]) for row in body["items"]] == [("h100", 1)]
        assert body["items"][0]["weightedGpuHours"] > 0
        _, body = await browser.get(f"/api/annotations?namespace=ml&keys={job}")
        assert {row["uid"]: row["annotations"] for row in body["items"]} == {
            f"wl-{name}": {job: "a"} for name in ("runs", "next", "last")
        }
        for wrong in ("usage?by=colour", "usage?halfLife=x", "annotations?keys=a,b,c,d,e", "attempts?since=never"):
            assert (await browser.get(f"/api/{wrong}"))[0] == 400, wrong
        cluster.lists["jane"] = {"other"}
        for path in (
            "attempts",
            "usage?by=namespace",
            "usage?by=localQueue",
            "usage?by=user",
            f"annotations?keys={job}",
        ):
            status, body = await browser.get(f"/api/{path}")
            text = orjson.dumps(body)
            assert status == 200 and b"runs" not in text and b'"ml' not in text, text
        assert (await browser.get("/api/job/ml/gpujob/runs/attempts"))[0] == 403


async def test_what_one_may_not_do_is_named(cluster: Cluster, pages: Pages) -> None:
    async with browsing(by_token(cluster), pages) as browser:
        await browser.sign_in("jane-token")
        _, body = await browser.get("/api/rights?namespace=ml")
        assert body["hold"] == {"allowed": True}
        assert body["cordon"] == {"allowed": False, "missing": "patch nodes"}


async def test_actions_are_done_one_by_one_with_the_askers_rights(cluster: Cluster, pages: Pages) -> None:
    verbs = Verbs()
    async with browsing(by_token(cluster), pages, verbs) as browser:
        await browser.sign_in("jane-token")
        targets = [{"namespace": "ml", "kind": "Job", "name": name} for name in ("next", "runs", "foreign", "last")]
        _, body = await browser.ask("POST", "/api/actions", json={"verb": "hold", "targets": targets, "preview": True})
        assert [(row["ok"], row["text"]) for row in body["results"]] == [
            (True, "job/next is held"),
            (False, "job/runs runs: to hold it would stop it"),
            (False, "you may not"),
            (True, "job/last is held"),
        ]
        assert verbs.done[0] == ("ml", "job/next", True, "Bearer jane-token")
        move = {"verb": "move", "targets": targets[:1], "queue": "night"}
        _, body = await browser.ask("POST", "/api/actions", json=move)
        assert body["results"][0]["text"] == "job/next moves to night"


WRONG_ACTIONS: list[Any] = [
    {},
    {"verb": "delete", "targets": [{"namespace": "a", "name": "b"}]},
    {"verb": "hold", "targets": []},
    {"verb": "hold", "targets": "all"},
    {"verb": "hold", "targets": [{"namespace": "a", "name": "b"}] * 201},
    {"verb": "hold", "targets": [{"namespace": "a"}]},
    {"verb": "hold", "targets": [{"namespace": "../kube-system", "name": "b"}]},
    {"verb": "hold", "targets": [{"namespace": "a", "name": "b/../../c"}]},
    {"verb": "hold", "targets": [["a"]]},
    {"verb": "move", "targets": [{"namespace": "a", "name": "b"}]},
    [],
]


async def test_odd_requests_are_refused_by_name(cluster: Cluster, pages: Pages) -> None:
    verbs = Verbs()
    async with browsing(by_token(cluster), pages, verbs) as browser:
        await browser.sign_in("admin-token")
        for body in WRONG_ACTIONS:
            status, answer = await browser.ask("POST", "/api/actions", json=body)
            assert (status, answer.keys()) == (400, {"error"}), body
        status, answer = await browser.ask("POST", "/api/actions", data=b"[" * 100_000)
        assert status == 400
        status, answer = await browser.ask("POST", "/api/actions", data=b" " * (ui_app.LONGEST_BODY + 1))
        assert status == 413
        assert not verbs.done


def test_a_token_is_what_rfc_6750_says() -> None:
    assert sessions.is_token("abc.DEF-_~+/=")
    for wrong in ("", "a b", "a\nb", "a;b", "é", "x" * (sessions.LONGEST_TOKEN + 1)):
        assert not sessions.is_token(wrong)


# --- doctor -----------------------------------------------------------------------------------------------------------


async def test_doctor_examines_with_the_rights_of_who_asks_and_once_a_person_at_a_time(
    cluster: Cluster, pages: Pages
) -> None:
    going, asked = asyncio.Event(), list[str]()

    async def doctor(client: Any) -> list[Json]:
        asked.append((await client.login.headers())["Authorization"])
        await going.wait()
        return [{"name": "clocks", "level": "ok", "text": "agree", "advice": "", "objects": []}]

    async with browsing(by_token(cluster), pages, doctor=doctor) as jane:
        assert (await jane.get("/api/doctor"))[0] == 401
        await jane.sign_in("jane-token")
        first = asyncio.create_task(jane.get("/api/doctor"))
        while not asked:
            await asyncio.sleep(0.01)
        assert (await jane.get("/api/doctor"))[0] == 429
        going.set()
        status, body = await first
        assert (status, body["items"][0]["name"], asked) == (200, "clocks", ["Bearer jane-token"])


async def test_doctor_has_a_time_limit(cluster: Cluster, pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui_app, "EXAMINED_WITHIN", 0.05)

    async def doctor(client: Any) -> list[Json]:
        await asyncio.Event().wait()
        return []

    async with browsing(by_token(cluster), pages, doctor=doctor) as browser:
        await browser.sign_in("admin-token")
        status, body = await browser.get("/api/doctor")
        assert status == 504 and "0.05 seconds" in body["error"]
    async with browsing(by_token(cluster), pages) as browser:
        await browser.sign_in("admin-token")
        assert (await browser.get("/api/doctor"))[0] == 404


async def test_a_question_about_the_whole_cluster_is_asked_in_the_dashboards_namespace(
    cluster: Cluster, pages: Pages
) -> None:
    async with browsing(by_token(cluster), pages, namespace="ml") as browser:
        await browser.sign_in("admin-token")
        body = {"namespace": "", "change": {"drain": "none"}}
        status, answer = await browser.ask("POST", "/api/whatif", json=body)
        assert status == 422 and "there is no node 'none'" in answer["error"]
