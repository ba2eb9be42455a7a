"""Large reviews come in turn: within limits, by namespace, and what is refused is answered in words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient
from tests.bench.reviews import review
from tests.builders.written import Json, cluster_queue, gpujob, job
from tests.fuzz import worst

from gangline import bounded
from gangline_webhooks import intake as module
from gangline_webhooks.app import Readiness, create_app
from gangline_webhooks.envelope import ADMISSION, CONVERSION
from gangline_webhooks.facts import Facts
from gangline_webhooks.intake import (
    ALLOWANCE,
    AT_ONCE,
    PER_NAMESPACE,
    REFILL,
    SMALL,
    USUAL,
    Head,
    ReviewAccount,
    ReviewIntake,
    ReviewRefusedError,
    metered,
)

LARGE = "x" * SMALL


@dataclass
class Clocks:
    """Time and CPU time as a test has them go by."""

    now: float = 1000.0
    used: float = 0.0


@dataclass
class Desk:
    """An intake, and a judge whose reviews take the CPU time that the namespace says and wait for `open`."""

    clocks: Clocks = field(default_factory=Clocks)
    order: list[str] = field(default_factory=list[str])
    costs: dict[str, float] = field(default_factory=dict[str, float])
    open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.intake = ReviewIntake(2**20, clock=lambda: self.clocks.now, cpu=lambda: self.clocks.used)
        self.open.set()

    async def judge(self, body: bytes) -> bytes:
        namespace = Head.of(body).namespace
        self.order.append(namespace)
        self.clocks.used += self.costs.get(namespace, 0)
        await self.open.wait()
        return b"judged"

    async def ask(self, namespace: str, content: str = LARGE, address: str = "api") -> bytes:
        return await self.intake.answer(chunks(body(namespace, content)), self.judge, address)


def body(namespace: str, content: str = LARGE) -> bytes:
    made = job(queue="main", annotations={"a": content})
    made["metadata"]["namespace"] = namespace
    return review(made, None)


async def chunks(data: bytes, size: int = 10_000) -> AsyncIterator[bytes]:
    for first in range(0, len(data), size):
        yield data[first : first + size]


def test_the_beginning_of_a_review_says_what_it_is_about():
    data = body("ml")
    head = Head.of(data[:1000])
    assert head == Head(orjson.loads(data)["request"]["uid"], "ml")
    assert Head.of(b"") == Head.of(b"[" * 100_000) == Head("", "")
    assert Head.of(b'{"request": {"uid": "u", "userInfo": {"namespace": "other"}}}') == Head("u", "")


async def test_a_namespace_that_has_used_its_allowance_is_refused_for_a_while_and_others_are_not():
    desk = Desk(costs={"greedy": ALLOWANCE / 2})
    for _ in range(2):
        assert await desk.ask("greedy") == b"judged"
    with pytest.raises(ReviewRefusedError, match="of namespace greedy are being checked") as refused:
        await desk.ask("greedy")
    assert (refused.value.status, refused.value.retry_after) == (429, 1)
    assert refused.value.uid
    assert await desk.ask("other") == b"judged"
    assert await desk.ask("greedy", "small") == b"judged", "large objects use none of what small ones have"
    desk.clocks.now += 0.5 / REFILL
    assert await desk.ask("greedy") == b"judged"
    with pytest.raises(ReviewRefusedError) as refused:
        await desk.ask("greedy")
    assert refused.value.retry_after == (ALLOWANCE / 2 - 0.5) / REFILL


async def test_small_reviews_are_free_unless_they_cost_more_than_usual_ones_again_and_again():
    worst = 0.013  # CPU seconds of the worst review of 16 KiB
    desk = Desk(costs={"costly": worst, "usual": USUAL})
    for _ in range(1000):
        assert await desk.ask("usual", "small") == b"judged"
    judged = 0
    with pytest.raises(
        ReviewRefusedError, match="too many costly objects of namespace costly are being checked"
    ) as refused:
        while True:
            await desk.ask("costly", "small")
            judged += 1
    assert judged == pytest.approx(ALLOWANCE / (worst - USUAL), abs=1)
    assert refused.value.status == 429 and refused.value.uid
    assert await desk.ask("usual", "small") == b"judged"
    desk.clocks.now += 60
    assert await desk.ask("costly", "small") == b"judged"


async def test_the_namespace_that_has_used_least_is_next():
    desk = Desk(costs={"greedy": 0.2, "modest": 0.1})
    for namespace in ("greedy", "modest"):
        await desk.ask(namespace)
    desk.open.clear()
    taken = [asyncio.ensure_future(desk.ask(f"first{number}")) for number in range(AT_ONCE)]
    await asyncio.sleep(0.01)
    desk.order.clear()
    waiting = [asyncio.ensure_future(desk.ask(each)) for each in ("greedy", "greedy", "modest", "new")]
    await asyncio.sleep(0.01)
    assert desk.order == []
    desk.open.set()
    await asyncio.gather(*taken, *waiting)
    assert desk.order == ["new", "modest", "greedy", "greedy"]


async def test_whoever_names_a_namespace_uses_none_of_its_allowance():
    """Any pod can send a review that names any namespace."""
    desk = Desk(costs={"victim": ALLOWANCE})
    await desk.ask("victim", address="pod")
    with pytest.raises(ReviewRefusedError):
        await desk.ask("victim", address="pod")
    assert await desk.ask("victim", address="api") == b"judged"


async def test_addresses_take_turns_however_many_namespaces_they_name():
    desk = Desk(costs={"tenant": 0.1})
    await desk.ask("tenant")
    desk.open.clear()
    taken = [asyncio.ensure_future(desk.ask(f"first{number}", address="pod")) for number in range(AT_ONCE)]
    await asyncio.sleep(0.01)
    desk.order.clear()
    waiting = [asyncio.ensure_future(desk.ask(f"invented{number}", address="pod")) for number in range(5)]
    await asyncio.sleep(0.01)
    waiting += [asyncio.ensure_future(desk.ask("tenant")) for _ in range(2)]
    await asyncio.sleep(0.01)
    desk.open.set()
    await asyncio.gather(*taken, *waiting)
    assert desk.order[:4] == ["invented0", "tenant", "invented1", "tenant"]


async def test_slow_conversions_of_another_address_give_way():
    """Four of them took all bytes for ten seconds, in which the API server could convert no list."""
    desk = Desk()
    desk.intake = ReviewIntake(CONVERSION.most_bytes, by_namespace=False)

    async def slow() -> AsyncIterator[bytes]:
        yield b" " * (CONVERSION.most_bytes - 1)
        await asyncio.Event().wait()

    held = [asyncio.ensure_future(desk.intake.answer(slow(), desk.judge, "pod")) for _ in range(4)]
    await asyncio.sleep(0.05)
    assert await desk.intake.answer(chunks(b" " * 2**20), desk.judge, "api") == b"judged"
    await asyncio.sleep(0.01)
    assert [each.done() for each in held] == [True, False, False, False]
    for each in held:
        each.cancel()
    await asyncio.gather(*held, return_exceptions=True)


async def test_a_review_that_waits_too_long_is_refused_and_its_turn_is_not_lost(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "PATIENCE", 0.02)
    desk = Desk()  # made after that
    for _ in range(3):
        desk.open.clear()
        taken = [asyncio.ensure_future(desk.ask(f"first{number}")) for number in range(AT_ONCE)]
        await asyncio.sleep(0)
        gone = asyncio.ensure_future(desk.ask("gone"))
        await asyncio.sleep(0)
        with pytest.raises(ReviewRefusedError, match="try again in a moment") as refused:
            await desk.ask("late")
        assert refused.value.status == 429
        gone.cancel()
        desk.open.set()
        await asyncio.gather(*taken)
    assert desk.intake._turns._free == AT_ONCE and not desk.intake._turns._waiting


async def test_bodies_of_one_namespace_leave_room_for_those_of_others():
    desk = Desk()
    desk.intake = ReviewIntake(PER_NAMESPACE)

    async def endless(namespace: str) -> AsyncIterator[bytes]:
        yield body(namespace) + b" " * (PER_NAMESPACE - 2**20)
        await asyncio.Event().wait()

    held = asyncio.ensure_future(desk.intake.answer(endless("greedy"), desk.judge))
    await asyncio.sleep(0.05)
    with pytest.raises(ReviewRefusedError) as refused:
        await desk.intake.answer(chunks(body("greedy", "x" * 2**20)), desk.judge)
    assert refused.value.status == 429
    assert await desk.intake.answer(chunks(body("other", "x" * 2**20)), desk.judge) == b"judged"
    held.cancel()


async def test_only_the_steps_of_the_work_itself_are_charged():
    clocks, spent = Clocks(), list[float]()

    async def work(cancelled: bool) -> str:
        clocks.used += 1
        try:
            await asyncio.sleep(10 if cancelled else 0.01)
        except asyncio.CancelledError:
            clocks.used += 2
            raise
        clocks.used += 3
        return "done"

    async def other() -> None:
        clocks.used += 100

    async def run(cancelled: bool) -> str:
        return await metered(work(cancelled), lambda: clocks.used, spent.append)

    found, _ = await asyncio.gather(run(cancelled=False), other())
    assert found == "done" and sum(spent) == 4
    spent.clear()
    task = asyncio.ensure_future(run(cancelled=True))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sum(spent) == 3


# --- through the endpoints ------------------------------------------------------------------------------------------------


def nested(obj: Json, row: bytes, size: int, old: Json | None = None) -> bytes:
    """A review of the object with rows in a field that its schema preserves."""
    obj["spec"]["unknown"] = "HERE"
    return review(obj, old).replace(b'"HERE"', b"[" + row * (size // len(row)) + b"0]")


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize("row", [b"[],", b"{},", b"0,", b'"",', b'{"a":0},', b"[" * 88 + b"]" * 88 + b","])
def test_too_many_values_are_refused_before_they_become_objects(path: str, row: bytes, monkeypatch: pytest.MonkeyPatch):
    """Ten of these once cost an API server's other requests their time."""
    client = TestClient(create_app(Facts(None), Readiness()))
    sent = nested(gpujob(), row, 1_500_000)
    uid = orjson.loads(sent)["request"]["uid"]
    monkeypatch.setattr(bounded.orjson, "loads", lambda _: pytest.fail("it was decoded"))
    answer = client.post(path, content=sent)
    response = answer.json()["response"]
    assert (answer.status_code, response["uid"], response["allowed"]) == (200, uid, False)
    assert (response["status"]["code"], response["status"]["reason"]) == (413, "RequestEntityTooLarge")
    assert f"more than {ADMISSION.most_values} values" in response["status"]["message"]


def test_too_many_levels_are_refused_in_the_review():
    client = TestClient(create_app(Facts(None), Readiness()))
    response = client.post("/mutate", content=nested(gpujob(), b"[" * 120 + b"]" * 120 + b",", 1000)).json()["response"]
    assert response["status"]["code"] == 413 and "more than 100 levels" in response["status"]["message"]


def test_too_large_a_review_is_refused_in_the_review():
    client = TestClient(create_app(Facts(None), Readiness()))
    response = client.post("/mutate", content=body("ml", "x" * ADMISSION.most_bytes)).json()["response"]
    assert response["allowed"] is False and response["status"]["code"] == 413
    assert client.post("/mutate", content=b" " * (ADMISSION.most_bytes + 1)).status_code == 413


def test_a_conversion_of_too_many_values_fails_in_words():
    queue = cluster_queue()
    queue["spec"]["x"] = [[]] * (CONVERSION.most_values + 1)
    request = {"uid": "u", "desiredAPIVersion": "kueue.x-k8s.io/v1beta1", "objects": [queue]}
    sent = {"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "request": request}
    response = TestClient(create_app(Facts(None), Readiness())).post("/convert", json=sent).json()["response"]
    assert response["uid"] == "u" and "values" in response["result"]["message"]


def test_an_exhausted_namespace_gets_its_429_in_the_review():
    clocks = Clocks()
    intake = ReviewIntake(ADMISSION.most_bytes, clock=lambda: clocks.now, cpu=lambda: clocks.used)
    intake._allowances.charge(ReviewAccount("testclient", "greedy"), ALLOWANCE + 1)
    client = TestClient(create_app(Facts(None), Readiness(), intake=intake))
    status = client.post("/mutate", content=body("greedy")).json()["response"]["status"]
    assert (status["code"], status["reason"], status["details"]) == (429, "TooManyRequests", {"retryAfterSeconds": 10})
    assert client.post("/mutate", content=body("other")).json()["response"]["allowed"] is True
    assert client.post("/mutate", content=body("greedy", "small")).json()["response"]["allowed"] is True


PIECES: dict[str, Callable[[], Any]] = {
    "nested lists": lambda: [[[]] * 50] * 300,
    "small objects": lambda: [{"a": 0}] * 20_000,
    "a long text": lambda: "x" * 1_400_000,
    "zeros": lambda: [0] * 90_000,
}


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("make", [gpujob, job], ids=["GPUJob", "Job"])
def test_what_no_rule_looks_at_costs_no_steps(make: Callable[[], Json], piece: str):
    """Nothing is copied that stays as it is, nor compared with itself."""
    client = create_app(Facts(None), Readiness())

    def steps(content: Any) -> int:
        made = make()
        made["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "main"
        template = (made["spec"].get("roles") or [made["spec"]])[0]["template"]
        template["spec"]["unknown"] = content
        sent = review(made, None)
        return worst.steps(lambda: TestClientless(client).post("/mutate", sent))

    assert steps(PIECES[piece]()) < steps([]) + 5000


class TestClientless:
    """Asks the app in this thread, so that its steps are counted."""

    __test__ = False

    def __init__(self, app: Any) -> None:
        self._app = app

    def post(self, path: str, sent: bytes) -> None:
        asked = [{"type": "http.request", "body": sent, "more_body": False}]
        answered: list[Any] = []

        async def receive() -> Any:
            return asked.pop() if asked else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            answered.append(message)

        scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
        asyncio.run(self._app(scope, receive, send))
        assert orjson.loads(answered[1]["body"])["response"]["allowed"]
