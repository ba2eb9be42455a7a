"""From something that happened to a message at a receiver: who is notified, how it is bundled, and what failures cost."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from click.testing import CliRunner
from tests.inbox import Inbox, opened
from tests.objects import Stored, WorkloadObject

from gangline.console.commands.change.notify import command
from gangline.control.controller import Controller
from gangline.control.feed.mirror import Mirror
from gangline.control.kinds.job_planning import JobPlanning
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.parts.messages import DeliveryFailed, Messages, NoticeLimited, StartMoved
from gangline.control.writes.notify.notices import (
    KINDS,
    MOST_LINES,
    MOST_SHOWN,
    Message,
    Notice,
    Notices,
    Receiver,
    Terms,
    compose,
)
from gangline.control.writes.notify.outbox import HOUR, MOST_ADDRESSES, MOST_WAITING, DeliveryError, Outbox, addressed
from gangline.control.writes.writer import Writer
from gangline.engine import Engine
from gangline.kube import resources as kube

Json = dict[str, Any]
ALICE = Receiver("gangline-system", "alice")


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with opened() as inbox:
        yield inbox


class Office:
    """An outbox with its secrets, its outcomes and its complaints."""

    def __init__(self, secrets: Mapping[str, Mapping[str, str]], **options: Any) -> None:
        self.secrets = dict(secrets)
        self.outcomes: list[tuple[str, str]] = []
        self.complaints: list[str] = []
        self.limited: list[tuple[str, str]] = []
        self.reads = 0
        self.outbox = Outbox(
            self.read,
            outcome=lambda kind, outcome: self.outcomes.append((kind, outcome)),
            complain=lambda receiver, why: self.complaints.append(why),
            limited=lambda workload, why: self.limited.append((workload, why)),
            **{"pauses": (0.0, 0.0), **options},
        )

    async def read(self, namespace: str, name: str) -> Mapping[str, str]:
        self.reads += 1
        if name not in self.secrets:
            raise LookupError(f"secrets {name!r} not found")
        return {key: base64.b64encode(text.encode()).decode() for key, text in self.secrets[name].items()}

    def put(
        self,
        kind: str = "Finished",
        receiver: Receiver = ALICE,
        terms: Terms = Terms(),  # noqa: B008
        text: str = "",
        namespace: str = "team",
    ) -> None:
        notice = Notice(kind, "cq", f"Job {namespace}/{text or kind}", text or "Because.", 0, f"{namespace}/w")
        self.outbox.put(receiver, terms, notice)

    async def empty(self) -> None:
        """Until nothing is under way."""
        while tasks := [box.task for box in self.outbox._boxes() if box.task is not None]:
            await asyncio.gather(*tasks)


class FakePost:
    """In place of Apprise: keeps what is sent, and fails as often as the test says."""

    def __init__(self, failures: int = 0) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.failures = failures
        self.tries = 0

    def __call__(self, url: str, message: Message) -> None:
        self.tries += 1
        if self.tries <= self.failures:
            raise DeliveryError("the receiver did not accept it")
        self.sent.append((url, message))


# --- delivery ---------------------------------------------------------------------------------------------------------


async def test_a_notice_arrives_at_a_real_receiver(inbox: Inbox) -> None:
    office = Office({"alice": {"url": f"# mine\n{inbox.url()}\n"}})
    office.put("Failed", text="out of memory")
    await office.empty()
    (body,) = inbox.bodies
    assert body["title"] == "Job team/out of memory has failed"
    assert body["message"] == "out of memory\nClusterQueue: cq"
    assert body["type"] == "warning"
    assert office.outcomes == [("Failed", "sent")]
    await office.outbox.close(5)


async def test_a_receiver_that_refuses_is_tried_again_then_given_up_and_complained_of_once(
    inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    inbox.status = 500
    office = Office({"alice": {"url": inbox.url("secret-token")}})
    office.put()
    await office.empty()
    assert len(inbox.bodies) == 3
    assert office.outcomes == [("Finished", "failed")]
    office.put()
    await office.empty()
    assert office.complaints == ["the receiver did not accept it"]
    inbox.status = 200
    office.put()
    await office.empty()
    assert office.outcomes[-1] == ("Finished", "sent")
    assert "secret-token" not in caplog.text
    await office.outbox.close(5)


async def test_only_the_url_that_refused_is_tried_again() -> None:
    post = FakePost(failures=1)
    office = Office({"alice": {"url": "json://one\njson://two"}}, send=post)
    office.put()
    await office.empty()
    assert [url for url, _ in post.sent] == ["json://two", "json://one"]


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        ({}, "Secret gangline-system/alice: secrets 'alice' not found"),
        ({"alice": {"address": "x"}}, "Secret gangline-system/alice: it has no key url"),
        ({"alice": {"url": "nonsense"}}, "Apprise does not know a URL in it"),
    ],
)
async def test_a_secret_that_is_of_no_use_is_complained_of(secret: Mapping[str, Mapping[str, str]], why: str) -> None:
    office = Office(secret)
    office.put()
    await office.empty()
    assert office.complaints == [why]
    assert office.outcomes == [("Finished", "failed")]
    await office.outbox.close(5)


async def test_what_comes_together_is_told_together() -> None:
    post = FakePost()
    office = Office({"alice": {"url": "json://x"}}, send=post)
    for _ in range(60):
        office.put("Admitted")
    office.put("Failed")
    await office.empty()
    ((_, message),) = post.sent
    assert message.title == "Gangline: 60 Admitted, 1 Failed"
    assert message.body.splitlines()[-1] == f"… and {61 - MOST_LINES} more"
    assert message.warning
    assert office.reads == 1


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_beyond_the_rate_they_wait_for_the_next_message(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, post = Clock(), FakePost()
    office = Office({"alice": {"url": "json://x"}}, send=post, clock=clock)
    pauses: list[float] = []

    async def pause(seconds: float, woken: asyncio.Event | None = None) -> None:
        pauses.append(seconds)
        clock.now += seconds
        await asyncio.sleep(0)

    monkeypatch.setattr(office.outbox, "_pause", pause)
    for _ in range(3):
        office.put(terms=Terms(max_per_hour=2))
        await office.empty()
        clock.now += 60
    assert len(post.sent) == 3
    assert pauses == [3600 - 120], "the first of two an hour is an hour old then"


async def test_a_digest_waits_for_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    post = FakePost()
    office = Office({"alice": {"url": "json://x"}}, send=post)
    for _ in range(3):
        office.put(terms=Terms(digest=3600))
        await asyncio.sleep(0)
    assert post.sent == []
    await office.outbox.close(10)
    ((_, message),) = post.sent
    assert message.title == "Gangline: 3 Finished", "the end of the process does not wait for it"


async def test_too_much_is_dropped_and_counted() -> None:
    office = Office({"alice": {"url": "json://x"}}, send=FakePost())
    for _ in range(MOST_WAITING + 5):
        office.put(terms=Terms(digest=3600))
    assert office.outcomes == [("Finished", "dropped")] * 5
    await office.outbox.close(10)
    assert office.outcomes.count(("Finished", "sent")) == MOST_WAITING


@pytest.mark.parametrize(
    ("urls", "to", "found"),
    [
        (["json://a", "", "# b"], "", ["json://a"]),
        (["mailtos://me:pw@mail?to={to}", "json://a"], "", ["json://a"]),
        (["mailtos://me:pw@mail?to={to}"], "a@b.org", ["mailtos://me:pw@mail?to=a@b.org"]),
        (["slack://token/{to}"], "#team", ["slack://token/%23team"]),
        (["json://h/?x={to}"], "a+b", ["json://h/?x=a%2Bb"]),
    ],
)
def test_a_jobs_own_address_goes_where_the_url_asks_for_it(urls: Sequence[str], to: str, found: list[str]) -> None:
    assert addressed(urls, to) == found


async def test_whom_nobody_gave_an_address_is_not_written_to() -> None:
    post = FakePost()
    office = Office({"alice": {"url": "json://h/{to}"}, "bob": {"url": "json://h/{to}", "to": "bob"}}, send=post)
    office.put()
    office.put(receiver=Receiver("gangline-system", "bob"))
    office.put(receiver=Receiver("gangline-system", "alice", "carol"))
    await office.empty()
    assert sorted(url for url, _ in post.sent) == ["json://h/bob", "json://h/carol"]
    assert ("Finished", "unaddressed") in office.outcomes


# --- bounds of a namespace ----------------------------------------------------------------------------------------------


def own(number: int) -> Receiver:
    return Receiver("gangline-system", "mail", f"u{number}@example.org")


MAIL = {"mail": {"url": "mailtos://h?to={to}"}}


async def test_a_namespace_writes_to_so_many_addresses_and_others_to_theirs() -> None:
    """Many addresses of one namespace used to fill the boxes of all namespaces, and everybody's notices were dropped."""
    clock, post = Clock(), FakePost()
    office = Office(MAIL, send=post, clock=clock)
    terms = Terms(max_per_namespace=100_000)
    for number in range(10_100):
        office.put(receiver=own(number), terms=terms)
    office.put(receiver=own(0), terms=terms, namespace="other")
    await office.empty()
    assert len(post.sent) == MOST_ADDRESSES + 1
    assert office.outcomes.count(("Finished", "dropped")) == 10_100 - MOST_ADDRESSES
    assert [workload for workload, _ in office.limited] == ["team/w"], "once an hour"
    assert f"gave {MOST_ADDRESSES} addresses" in office.limited[0][1]
    clock.now += HOUR
    office.put(receiver=own(20_000), terms=terms)
    await office.empty()
    assert len(post.sent) == MOST_ADDRESSES + 2, "addresses that were idle for an hour make room"


async def test_a_namespaces_messages_to_its_addresses_are_bounded_in_sum() -> None:
    post = FakePost()
    office = Office(MAIL, send=post)
    for number in range(50):
        office.put(receiver=own(number), terms=Terms(max_per_namespace=20))
    office.put(receiver=own(0), terms=Terms(max_per_namespace=20), namespace="other")
    while len(post.sent) < 21:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    assert len(post.sent) == 21, "20 of the one namespace, and that of the other, which waits for nobody"
    assert [why for _, why in office.limited if "sent 20 messages" in why and "wait" in why]
    await office.outbox.close(5)
    assert len(post.sent) == 21, "the end of the process is no way around the bound"
    assert office.outcomes.count(("Finished", "dropped")) == 30


async def test_a_namespaces_waiting_notices_leave_room_for_those_of_others() -> None:
    office = Office({"alice": {"url": "json://x"}}, send=(post := FakePost()))
    for _ in range(MOST_WAITING + 5):
        office.put(terms=Terms(digest=3600))
    office.put("Failed", terms=Terms(digest=3600), namespace="other", text="mine")
    assert office.outcomes == [("Finished", "dropped")] * 5
    await office.outbox.close(10)
    ((_, message),) = post.sent
    assert "Job other/mine has failed" in message.body, "a digest lists notices of every namespace"


async def test_a_namespace_alone_does_not_use_up_the_rate_of_a_shared_receiver() -> None:
    post = FakePost()
    office = Office({"alice": {"url": "json://x"}}, send=post)
    for _ in range(3):
        office.put(terms=Terms(max_per_hour=4))
        await office.empty()
    office.put(terms=Terms(max_per_hour=4), text="fourth")
    await asyncio.sleep(0.01)
    assert len(post.sent) == 3
    office.put(terms=Terms(max_per_hour=4), namespace="other")
    async with asyncio.timeout(10):
        await office.empty()
    assert len(post.sent) == 4, "the notice of the other namespace leaves at once, and takes the waiting one along"
    assert "Job team/fourth" in post.sent[-1][1].body
    await office.outbox.close(5)


# --- whom -------------------------------------------------------------------------------------------------------------


class Desk:
    """Notices of one job `train` in ClusterQueue `cq`, with the receivers of one policy."""

    def __init__(self, *rules: Json, **annotations: str) -> None:
        self.notified: list[tuple[Receiver, Terms, Notice]] = []
        self.now = 0
        self.mirror = Mirror(observe=lambda change: None)
        self.messages = Messages()
        deliver = lambda *what: self.notified.append(what)  # noqa: E731
        self.notices = Notices(self.mirror, deliver, now=lambda: self.now, messages=self.messages)
        self.put(kube.CLUSTER_QUEUES, {"metadata": {"name": "cq"}, "spec": {}})
        self.put(kube.LOCAL_QUEUES, {"metadata": {"name": "lq", "namespace": "team"}, "spec": {"clusterQueue": "cq"}})
        if rules:
            spec = {"clusterQueues": {"names": ["cq"]}, "notify": list(rules)}
            self.put(kube.QUEUE_POLICIES, {"metadata": {"name": "p"}, "spec": spec})
        said = {f"gangline.io/{name.replace('_', '-')}": text for name, text in annotations.items()}
        meta = {"name": "train", "namespace": "team", "annotations": said}
        self.put(kube.JOBS, {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {}})
        owner = {"kind": "Job", "name": "train", "uid": "train", "controller": True}
        self.workload = WorkloadObject(
            {
                "metadata": {"name": "job-train", "namespace": "team", "ownerReferences": [owner]},
                "spec": {"queueName": "lq", "podSets": []},
            }
        )

    def put(self, resource: Any, obj: Json) -> None:
        obj["metadata"] |= {"uid": obj["metadata"]["name"], "resourceVersion": "1"}
        self.mirror.upsert(resource, obj)

    def kinds(self) -> list[str]:
        for kind in KINDS:
            self.notices.notify(kind, self.workload, "text")
        return [notice.kind for _, _, notice in self.notified]


RULE: Json = {"secretRef": {"name": "slack"}, "events": ["Failed", "Stalled"]}


def test_a_policy_says_who_is_told_what() -> None:
    desk = Desk(RULE, {"secretRef": {"name": "mail", "namespace": "ops"}, "events": ["Failed"], "digest": "5m"})
    assert sorted(desk.kinds()) == ["Failed", "Failed", "Stalled"]
    receiver, terms, notice = desk.notified[1] if desk.notified[1][2].kind == "Failed" else desk.notified[2]
    assert {notification[0] for notification in desk.notified} == {
        Receiver("gangline-system", "slack"),
        Receiver("ops", "mail"),
    }
    assert (notice.subject, notice.queue) == ("Job team/train", "cq")
    assert (receiver, terms.digest) in {(Receiver("ops", "mail"), 300.0), (Receiver("gangline-system", "slack"), 0.0)}


def test_without_a_policy_nobody_is_told() -> None:
    assert Desk().kinds() == []
    assert not Desk().notices.wants("Failed")
    assert Desk(RULE).notices.wants("Failed")


@pytest.mark.parametrize(
    ("wish", "kinds"),
    [
        ("none", []),
        ("off", []),
        ("Failed", ["Failed"]),
        ("Finished, Stalled", ["Stalled"]),
        ("", ["Stalled", "Failed"]),
    ],
)
def test_a_job_chooses_what_is_told_of_it(wish: str, kinds: list[str]) -> None:
    assert Desk(RULE, notify=wish).kinds() == kinds


@pytest.mark.parametrize(
    ("address", "to"), [("alice@example.org", "alice@example.org"), ("x?to=evil", ""), ("a b", ""), ("", "")]
)
def test_a_job_gives_its_own_address_but_no_part_of_a_url(address: str, to: str) -> None:
    desk = Desk({**RULE, "addresses": ["*"]}, notify_to=address)
    desk.kinds()
    assert {receiver.to for receiver, _, _ in desk.notified} == {to}


@pytest.mark.parametrize(
    ("addresses", "address", "permitted"),
    [
        (None, "alice@example.org", False),
        (["*@example.org"], "Alice@Example.org", True),
        (["*@example.org"], "alice@example.org.evil.net", False),
        (["*@example.org"], "alice@sub.example.org", False),
        (["*@example.org"], "alice@evil.net@example.org", False),
        (["#gpu-jobs", "bob@example.org"], "#gpu-jobs", True),
        (["#gpu-jobs"], "#all", False),
        (["*"], "x y", False),
    ],
)
def test_a_job_gives_only_addresses_that_the_policy_permits(
    addresses: list[str] | None, address: str, permitted: bool
) -> None:
    rule = {**RULE, **({"addresses": addresses} if addresses is not None else {})}
    desk, said = Desk(rule, notify_to=address), list[NoticeLimited]()
    desk.messages.subscribe(NoticeLimited, said.append)
    desk.kinds()
    assert {receiver.to for receiver, _, _ in desk.notified} == {address if permitted else ""}
    assert [message.workload for message in said] == ([] if permitted else ["team/job-train"]), "said once"
    assert all("gangline.io/notify-to" in message.why for message in said)


def test_an_expected_start_is_told_when_it_moved_far_enough() -> None:
    desk = Desk({**RULE, "events": ["StartMoved"], "startMovedBy": "20m"})
    minute = 60_000
    for start in (60, 75, 79, 81, 95, 50):
        desk.notices.start_expected(desk.workload, start * minute, "node n7 is busy")
    assert [notice.text for _, _, notice in desk.notified] == [
        "later by 21m: now expected in 1h21m (node n7 is busy)",
        "earlier by 31m: now expected in 50m (node n7 is busy)",
    ]
    desk.notices.forget("team/job-train")
    desk.notices.start_expected(desk.workload, 500 * minute)
    assert len(desk.notified) == 2, "what is seen first is what later ones are compared with"


def test_each_receiver_is_told_of_a_moved_start_by_its_own_measure() -> None:
    mail = {**RULE, "secretRef": {"name": "mail"}, "events": ["StartMoved"], "startMovedBy": "20m"}
    chat = {**RULE, "secretRef": {"name": "chat"}, "events": ["StartMoved"], "startMovedBy": "1h"}
    desk, events = Desk(mail, chat), list[str]()
    desk.messages.subscribe(StartMoved, lambda message: events.append(message.text))
    for start in (100, 130, 165):
        desk.notices.start_expected(desk.workload, start * 60_000)
    notices = [(receiver.name, notice.text[:12]) for receiver, _, notice in desk.notified]
    assert notices == [("mail", "later by 30m"), ("mail", "later by 35m"), ("chat", "later by 1h5")]
    assert [text[:12] for text in events] == ["later by 30m", "later by 35m"], "one event each time"


def test_messages_read_well() -> None:
    notice = Notice("Preempted", "cq", "GPUJob team/llama", "For team/urgent. Its pods have 30s to stop", 0)
    assert compose([notice]) == Message(
        "GPUJob team/llama is preempted", "For team/urgent. Its pods have 30s to stop\nClusterQueue: cq", True
    )


# --- gangline notify test ---------------------------------------------------------------------------------------------


def test_the_command_sends_a_test_message(inbox: Inbox) -> None:
    ran = CliRunner().invoke(command, ["test", "--url", inbox.url("{to}"), "--to", "alice", "--kind", "Stalled"])
    assert (ran.exit_code, ran.stdout) == (0, "--url: sent\n")
    assert inbox.bodies[0]["title"] == "Job test/hello seems to hang"


def test_the_command_says_what_failed(inbox: Inbox) -> None:
    inbox.status = 404
    ran = CliRunner().invoke(command, ["test", "--url", inbox.url()])
    assert ran.exit_code == 1
    assert "the receiver did not accept it" in ran.output
    assert CliRunner().invoke(command, ["test", "--url", "json://h/{to}"]).exit_code == 1
    assert CliRunner().invoke(command, ["test"]).exit_code == 2
    assert CliRunner().invoke(command, ["test", "p", "--url", "json://h"]).exit_code == 2


# --- in the operator --------------------------------------------------------------------------------------------------


class Tape:
    """In place of the event recorder."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def record(self, obj: Json, kind: str, reason: str, note: str, action: str = "") -> None:
        self.events.append((obj["metadata"]["name"], reason, note))


async def test_a_policy_whose_receiver_fails_says_so_in_an_event() -> None:
    tape = Tape()
    controller = Controller(None, Writer(None), Engine(), tape, Metrics())  # type: ignore[arg-type]
    desk = Desk(RULE)
    controller.mirror.objects[kube.QUEUE_POLICIES] = desk.mirror.objects[kube.QUEUE_POLICIES]
    for namespace in ("gangline-system", "elsewhere"):
        controller.messages.publish(DeliveryFailed(namespace, "slack", "the receiver did not accept it"))
    assert tape.events == [("p", "NotificationFailed", "the receiver did not accept it")]


async def test_a_reached_bound_is_an_event_of_the_workload() -> None:
    tape = Tape()
    controller = Controller(None, Writer(None), Engine(), tape, Metrics())  # type: ignore[arg-type]
    meta = {"name": "w", "namespace": "team", "uid": "w", "resourceVersion": "1"}
    controller.mirror.objects[kube.WORKLOADS] = {"team/w": Stored({"metadata": meta, "spec": {}})}
    controller.messages.publish(NoticeLimited("team/w", "too many"))
    controller.messages.publish(NoticeLimited("team/gone", "too many"))
    assert tape.events == [("w", "NotificationLimited", "too many")]


async def test_an_end_is_told_by_how_it_ended() -> None:
    notices: list[tuple[str, str]] = []
    controller = Controller(None, Writer(None), Engine(), Tape(), Metrics())  # type: ignore[arg-type]
    [planning] = [part for part in controller.parts if isinstance(part, JobPlanning)]
    controller.notices.notify = lambda kind, workload, text: notices.append((kind, text))  # type: ignore[method-assign]
    for reason, text in (("Succeeded", "done"), ("Failed", "out of memory"), ("FailedToStart", "conflict")):
        row = {"type": "Finished", "status": "True", "reason": reason, "message": text}
        ended = WorkloadObject({"metadata": {"name": "w"}, "status": {"conditions": [row]}})
        planning._finished(ended)
    planning._finished(None)
    assert notices == [("Finished", "done"), ("Failed", "out of memory"), ("Failed", "conflict")]


async def test_a_receiver_that_never_answers_is_given_up():
    never = threading.Event()
    office = Office(
        {"alice": {"url": "json://x"}}, send=lambda url, message: never.wait(30) and None, pauses=(), most_time=0.05
    )
    try:
        office.put()
        async with asyncio.timeout(10):
            await office.empty()
    finally:
        never.set()
        await office.outbox.close(0.0)
    assert office.outcomes == [("Finished", "failed")]
    assert "no answer within 0.05 s" in office.complaints[0]


def test_what_people_wrote_is_cut_in_a_message():
    notices: list[Notice] = []
    mirror = Mirror(observe=lambda change: None)
    rule = {"secretRef": {"name": "s"}, "events": ["Failed"]}
    policy = {"clusterQueues": {"names": ["cq"]}, "notify": [rule]}
    meta = {"uid": "u", "resourceVersion": "1"}
    mirror.upsert(kube.QUEUE_POLICIES, {"metadata": {**meta, "name": "p"}, "spec": policy})
    mirror.upsert(kube.CLUSTER_QUEUES, {"metadata": {**meta, "name": "cq"}, "spec": {}})
    owner = {"controller": True, "apiVersion": "v1", "kind": "K" * 5000, "name": "n" * 5000, "uid": "x"}
    meta |= {"name": "w", "namespace": "team"}
    status = {"admission": {"clusterQueue": "cq"}}
    workload = WorkloadObject(
        {"metadata": {**meta, "ownerReferences": [owner]}, "spec": {"queueName": "lq"}, "status": status}
    )
    Notices(mirror, lambda receiver, terms, notice: notices.append(notice), now=lambda: 0).notify(
        "Failed", workload, "t" * 5000
    )
    assert (len(notices[0].text), len(notices[0].subject)) == (MOST_SHOWN, MOST_SHOWN)
    owner |= {"kind": "Job", "name": "n\r\nJob other/theirs has failed"}
    Notices(mirror, lambda receiver, terms, notice: notices.append(notice), now=lambda: 0).notify(
        "Failed", workload, "it\u2028has\nfailed \x1b[2J\u202e"
    )
    assert notices[1].subject == "Job team/n Job other/theirs has failed"
    assert notices[1].text == "it has failed �[2J�"
    lines = compose([notices[1], notices[1]]).body.splitlines()
    assert len(lines) == 2
