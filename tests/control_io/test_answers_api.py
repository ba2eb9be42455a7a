"""The answers as the aggregator asks for them: who is answered, what is refused and how, and how much at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from tests.builders import clusters
from tests.builders.clusters import gpujob
from tests.control_io.test_aggregated import ALICE, PROXY, Cluster, ask, serving, trusting

from gangline.control.answers.api import answers_api, event_stream
from gangline.control.answers.api.access_review import REMEMBERED, Reviews
from gangline.control.answers.api.aggregated_api import AggregatedApi
from gangline.control.answers.api.answers_api import Reviewed
from gangline.control.answers.api.front_proxy import User
from gangline.control.answers.source import NoForecastsError
from gangline.control.answers.usage.happenings import EventSubject, Log
from gangline.control.audit import audit_log, replay_process
from gangline.control.audit.audit_log import AuditLog, RecordedEngine
from gangline.control.audit.audit_reader import AuditReader
from gangline.tenants import SharedRoom

Json = dict[str, Any]
ROOT = "/apis/answers.gangline.io/v1alpha1"
OWN = f"{ROOT}/namespaces/ml"


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[AggregatedApi]:
    async with serving(cluster) as served:
        yield served


class Client:
    """Alice, through the aggregator."""

    def __init__(self, cluster: Cluster, api: AggregatedApi, directory: Path) -> None:
        self.api, self.context = api, trusting(cluster, directory, PROXY)

    async def get(self, path: str, **headers: str) -> tuple[int, Json]:
        return await ask(self.api, self.context, path, **(headers or ALICE))

    async def post(self, path: str, body: Any) -> tuple[int, Json]:
        url, host = f"https://127.0.0.1:{self.api.port}{path}", "gangline-visibility.gangline-system.svc"
        data = body if isinstance(body, bytes) else None
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                url,
                ssl=self.context,
                server_hostname=host,
                headers=ALICE,
                **({"data": data} if data is not None else {"json": body}),
            ) as answer,
        ):
            return answer.status, await answer.json()


@pytest.fixture
def client(cluster: Cluster, api: AggregatedApi, tmp_path: Path) -> Client:
    return Client(cluster, api, tmp_path)


async def test_jobs_are_listed_in_pages(client: Client) -> None:
    status, first = await client.get(f"{OWN}/queuedjobs?limit=2&times=true")
    assert (status, first["kind"], first["apiVersion"]) == (200, "QueuedJobList", "answers.gangline.io/v1alpha1")
    assert first["metadata"] == {"continue": "2", "remainingItemCount": 1}
    _, last = await client.get(f"{OWN}/queuedjobs?limit=2&times=true&continue=2")
    assert last["metadata"] == {} and first["now"] == clusters.NOW
    assert [item["jobName"] for item in first["items"] + last["items"]] == ["runs", "next", "last"]
    assert first["items"][1]["expectedStart"]["p50"] > clusters.NOW


async def test_each_question_has_a_kind_of_answer(client: Client) -> None:
    for path, kind, field in (
        (f"{OWN}/queuedjobs/next", "QueuedJob", "jobName"),
        (f"{OWN}/queuedjobs/next/why?kind=gpujob", "JobExplanation", "lines"),
        (f"{OWN}/queuedjobs/next/remedies", "JobRemedies", "remedies"),
        (f"{OWN}/queuedjobs/next/story", "JobStory", "events"),
        (f"{OWN}/flavornodes", "FlavorNodeList", "items"),
        (f"{OWN}/flavornodes?clusterQueue=a", "FlavorNodeList", "items"),
        (f"{OWN}/queuedjobs/next/victims", "JobVictims", "victims"),
        (f"{OWN}/queueshares", "QueueShareList", "items"),
        (f"{OWN}/pastruns?sinceSeconds=3600", "PastRunList", "items"),
        (f"{OWN}/plannedcapacities?at={clusters.NOW + 3600}", "PlannedCapacityList", "items"),
        (f"{ROOT}/plannedcapacities?clusterQueue=a", "PlannedCapacityList", "items"),
        (f"{ROOT}/queueshares?clusterQueue=a", "QueueShareList", "items"),
        (f"{ROOT}/pastruns", "PastRunList", "items"),
        (f"{OWN}/plannedruns?horizonSeconds=60", "PlannedRunList", "items"),
        (f"{OWN}/gangswaps", "GangSwapList", "items"),
        (f"{ROOT}/gangswaps?clusterQueue=a", "GangSwapList", "items"),
        (f"{OWN}/queueaudits", "QueueAuditList", "items"),
        (f"{ROOT}/queueaudits", "QueueAuditList", "items"),
        (f"{OWN}/forecastaccuracies", "ForecastAccuracyList", "model"),
        (f"{ROOT}/forecastaccuracies", "ForecastAccuracyList", "queues"),
        (f"{ROOT}/queuedjobs", "QueuedJobList", "items"),
        (f"{ROOT}/plannedruns", "PlannedRunList", "items"),
        (f"{OWN}/decisions?sinceSeconds=60&untilSeconds=30", "RecordedDecisionList", "items"),
        (f"{ROOT}/decisions?clusterQueue=a", "RecordedDecisionList", "items"),
        (f"{ROOT}/recordchecks", "RecordCheckList", "items"),
    ):
        status, body = await client.get(path)
        assert (status, body["kind"]) == (200, kind) and field in body, body
    status, body = await client.post(f"{OWN}/whatifs", {"spec": {"job": gpujob("mine", 2, "1h")}})
    assert (status, body["kind"]) == (201, "WhatIf") and body["status"]["suggestions"]


async def test_attempts_and_sums_are_answered_in_pages(client: Client, api: AggregatedApi) -> None:
    answers = api._answers._answers
    answers.record = clusters.attempt_record(answers)
    for path, kind in (
        (f"{OWN}/jobattempts?sinceSeconds=60&clusterQueue=a", "JobAttemptList"),
        (f"{ROOT}/jobattempts", "JobAttemptList"),
        (f"{OWN}/jobattempts?cheaper=true", "JobAttemptList"),
        (f"{OWN}/usagesums", "UsageSumList"),
        (f"{ROOT}/usagesums?by=user&halfLifeSeconds=60&limit=1", "UsageSumList"),
        (f"{OWN}/usagesums?by=day&start={clusters.NOW - 400 * 86_400}&timeZone=Europe/Berlin", "UsageSumList"),
        (f"{OWN}/usagesums?sinceSeconds=34560000", "UsageSumList"),
        (f"{OWN}/jobattempts?sinceSeconds=34560000", "JobAttemptList"),
    ):
        status, body = await client.get(path)
        assert (status, body["kind"], len(body["items"])) == (200, kind, 1), body
    status, body = await client.get(f"{OWN}/queuedjobs/runs/attempts?kind=gpujob")
    assert (status, body["kind"], [row["attempt"] for row in body["attempts"]]) == (200, "JobAttempts", [1])
    status, body = await client.get(f"{OWN}/queuedjobs?annotations=kueue.x-k8s.io/queue-name,none")
    assert [row["annotations"] for row in body["items"]] == [{"kueue.x-k8s.io/queue-name": "a"}] * 3


async def test_the_api_server_is_asked_for_the_verb_and_then_for_what_may_be_seen(
    cluster: Cluster, client: Client
) -> None:
    await client.get(f"{OWN}/queuedjobs/next/why")
    asked = [review["resourceAttributes"] for review in cluster.reviewed]
    group = {"group": "answers.gangline.io", "version": "v1alpha1"}
    why = {"resource": "queuedjobs", "subresource": "why", "name": "next", "namespace": "ml", "verb": "get"}
    assert asked[0] == group | why
    listing = {"group": "kueue.x-k8s.io", "version": "v1beta2", "resource": "workloads", "verb": "list"}
    assert asked[1:] == [listing], "who may list all Workloads is asked no more"
    status, body = await client.get(f"{OWN}/queuedjobs", **{"X-Remote-User": "mallory"})
    assert (status, body["reason"], body["details"]) == (403, "Forbidden", {"group": "answers.gangline.io"})
    assert 'User "mallory" cannot list resource "queuedjobs" in API group "answers.gangline.io"' in body["message"]


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("queuedjobs?limit=many", 400, "limit must be a whole number, not 'many'"),
        ("queuedjobs?continue=-1", 400, "continue must be"),
        ("queuedjobs?finished=yes", 400, "finished must be true or false, not 'yes'"),
        ("queuedjobs?watch=true", 400, "'watch': there is no such parameter"),
        ("queuedjobs?labelSelector=a", 400, "'labelSelector': there is no such parameter"),
        (f"queuedjobs?clusterQueue={'x' * 300}", 400, "clusterQueue has more than 253 characters"),
        ("queuedjobs?clusterQueue=none", 404, "no LocalQueue of namespace ml leads to a ClusterQueue 'none'"),
        ("queuedjobs/none/why", 404, "no job none in namespace ml"),
        ("queuedjobs/runs/remedies", 409, "gpujob/runs does not wait in a queue: it is starting"),
        ("queuedjobs/next/why?kind=daemonset", 400, "unknown kind 'daemonset'"),
        ("plannedruns?horizonSeconds=0", 400, "horizonSeconds must be from 1 to 604800, not 0"),
        ("plannedruns?horizonSeconds=999999999", 400, "horizonSeconds must be"),
        (f"plannedcapacities?at={clusters.NOW - 3600}", 400, "at must be within the 14 days to come"),
        (f"plannedcapacities?at={clusters.NOW + 15 * 86_400}", 400, "at must be within the 14 days to come"),
        (f"plannedcapacities?at={'9' * 5000}", 400, "at must be a whole number"),
        ("plannedcapacities?clusterQueue=none", 404, "no LocalQueue of namespace ml leads to a ClusterQueue 'none'"),
        ("pastruns?sinceSeconds=0", 400, "sinceSeconds must be from 1 to 15552000, not 0"),
        ("pastruns?clusterQueue=none", 404, "no LocalQueue of namespace ml leads to a ClusterQueue 'none'"),
        ("pastruns?sinceSeconds=15552001", 400, "sinceSeconds must be"),
        ("queueshares?clusterQueue=none", 404, "no LocalQueue of namespace ml leads to a ClusterQueue 'none'"),
        ("flavornodes?clusterQueue=none", 404, "no LocalQueue of namespace ml leads to a ClusterQueue 'none'"),
        ("flavornodes/none/moves", 404, "there is no node none of a flavor that the queues of namespace ml offer"),
        ("queuedjobs/runs/victims", 409, "gpujob/runs does not wait in a queue: it is starting"),
        ("gangswaps?clusterQueue=none", 404, "no LocalQueue of namespace ml leads to a ClusterQueue 'none'"),
        ("jobevents", 501, "nobody remembers here what happened"),
        ("jobevents?watch=true", 501, "nobody remembers here what happened"),
        ("jobevents?watch=maybe", 400, "watch must be true or false"),
        ("whatifs", 405, ""),
        ("decisions?sinceSeconds=60&untilSeconds=60", 400, "untilSeconds must be less than sinceSeconds, which is 60"),
        ("decisions?clusterQueue=none", 404, "no LocalQueue of namespace ml leads to a ClusterQueue 'none'"),
        ("decisions/5/inputs", 404, "keeps no record of its decisions"),
        ("decisions/five/inputs", 404, "decisions have numbers, and 'five' is none"),
        ("recordchecks", 404, ""),
        ("jobattempts", 501, "nobody keeps a record of attempts here"),
        ("queuedjobs/runs/attempts", 501, "nobody keeps a record of attempts here"),
        ("usagesums", 501, "nobody keeps a record of attempts here"),
        ("jobattempts?sinceSeconds=0", 400, "sinceSeconds must be from 1 to 34560000, not 0"),
        ("jobattempts?clusterQueue=none", 404, "no LocalQueue of namespace ml leads to a ClusterQueue 'none'"),
        ("usagesums?by=colour", 400, "by must be one of clusterQueue, localQueue, namespace, user"),
        ("usagesums?by=label:team", 501, "nobody keeps a record of attempts here"),
        ("usagesums?sinceSeconds=34560001", 400, "sinceSeconds must be from 1 to 34560000"),
        ("usagesums?start=5&end=5", 400, "start must be before end, which is 5, not 5"),
        ("usagesums?end=1700000000", 400, "start belongs to a question with end"),
        ("usagesums?start=5", 400, "start must be from 1665440000: older attempts are not kept; it is 5"),
        ("usagesums?start=-5", 400, "start must be a whole number"),
        ("usagesums?timeZone=../../etc/passwd", 400, "timeZone: there is no time zone '../../etc/passwd'"),
        ("usagesums?timeZone=Europe", 400, "timeZone: there is no time zone 'Europe'"),
        (f"usagesums?timeZone={'x' * 300}", 400, "timeZone: there is no time zone 'xxx"),
        ("jobattempts?endedAs=Badly", 400, "endedAs must be one of Succeeded, Failed, Preempted"),
        ("jobattempts?caused=maybe", 400, "caused must be true or false"),
        ("jobattempts?cheaper=1", 400, "cheaper must be true or false"),
        ("jobattempts?start=5", 400, "'start': there is no such parameter"),
        ("usagesums?halfLifeSeconds=15552001", 400, "halfLifeSeconds must be from 1 to 15552000"),
        ("usagesums?clusterQueue=none", 404, "no LocalQueue of namespace ml leads to a ClusterQueue 'none'"),
        ("queuedjobs?annotations=a,b,c,d,e", 400, "annotations must have at most 4 keys"),
        ("queuedjobs?annotations=a,,b", 400, "annotations: '' is no key of an annotation or a label"),
        (f"queuedjobs?annotations={'k' * 400}", 400, "annotations: 'kkk"),
    ],
)
async def test_what_cannot_be_answered_is_refused_by_its_name(client: Client, path: str, code: int, words: str) -> None:
    status, body = await client.get(f"{OWN}/{path}")
    assert (status, body["kind"], body["code"]) == (code, "Status", code)
    assert words in body["message"]


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"{", 422, "the body is not JSON"),
        (b"[]", 422, "the body is no object"),
        (b"[" * 100 + b"]" * 100, 422, "more than 60 levels"),
        (b'"' + b"x" * answers_api.LONGEST + b'"', 413, ""),
        ({"kind": "Job"}, 422, "kind: must be WhatIf, not 'Job'"),
        ({"spec": []}, 422, "spec: must be an object"),
        ({"spec": {"job": {}, "jobs": 1}}, 422, "spec.'jobs': there is no such field"),
        ({"spec": {"job": gpujob("x", 1, "1h"), "at": "soon"}}, 422, "spec.at: must be a time such as"),
        ({"spec": {"change": {"drain": "n1"}, "at": "soon"}}, 422, "spec.at: is the time at which spec.job"),
        ({"spec": {"job": {"kind": "Pod"}}}, 422, "spec.job: must be a Job, a JobSet or a GPUJob"),
        ({"spec": {"job": gpujob("x", 1, "1h", namespace="theirs")}}, 422, "spec.job.metadata.namespace"),
    ],
)
async def test_a_question_that_is_none_is_refused_by_its_field(
    client: Client, body: Any, code: int, words: str
) -> None:
    status, answer = await client.post(f"{OWN}/whatifs", body)
    assert (status, answer["kind"]) == (code, "Status") and words in answer["message"]


async def test_a_plan_is_checked_without_a_namespace(client: Client) -> None:
    window = {"start": "2030-12-01T08:00:00Z", "end": "2030-12-01T10:00:00Z"}
    asked = {"kind": "Reservation", "name": "weekly", "spec": {"window": window, "nodes": {"names": ["none"]}}}
    status, body = await client.post(f"{ROOT}/planchecks", {"kind": "PlanCheck", "spec": asked})
    assert (status, body["kind"], body["status"]) == (
        201,
        "PlanCheck",
        {"warnings": ["Not honoured: There is no node none"]},
    )
    for sent, words in (
        ({"kind": "WhatIf"}, "kind: must be PlanCheck, not 'WhatIf'"),
        ({"spec": {**asked, "kind": "Job"}}, "spec.kind: must be Reservation or QuotaPlan"),
        ({"spec": {**asked, "spec": {}}}, "spec.spec."),
    ):
        status, answer = await client.post(f"{ROOT}/planchecks", sent)
        assert (status, answer["kind"]) == (422, "Status") and words in answer["message"]
    assert (await client.post(f"{OWN}/planchecks", {"spec": asked}))[0] == 404


async def test_an_operator_without_forecasts_says_so(
    cluster: Cluster, api: AggregatedApi, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(*_: Any) -> Any:
        raise NoForecastsError("this operator makes no forecasts")

    monkeypatch.setattr(api._answers._answers._foresight.__class__, "outlook", none)
    status, body = await client.get(f"{OWN}/queuedjobs?times=true")
    assert (status, body["reason"]) == (501, "NotImplemented") and "makes no forecasts" in body["message"]
    assert (await client.get(f"{OWN}/queuedjobs"))[0] == 200


async def test_an_answer_that_takes_too_long_is_given_up(
    api: AggregatedApi, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(answers_api, "TIME", 0.05)
    monkeypatch.setattr(api._answers._answers._foresight.__class__, "outlook", never)
    status, body = await client.get(f"{OWN}/plannedruns")
    assert (status, body["reason"]) == (504, "Timeout")


class Lister(Cluster):
    """Lets alice list the Workloads of these namespaces."""

    async def create(self, resource: Any, namespace: str | None, body: Json, **_: Any) -> Json:
        asked = body["spec"]["resourceAttributes"]
        self.reviewed.append(body["spec"])
        return {**body, "status": {"allowed": asked.get("namespace") in ("ml", "n001")}}


async def test_what_may_be_seen_is_asked_for_each_namespace_up_to_a_limit() -> None:
    cluster: Any = Lister()
    asker = Reviewed(Reviews(cluster), User("alice"), "ml")
    sight = await asker.sight({"theirs", "n001", "ml"}, {"a"})
    assert not sight.everything and sight.namespaces == {"ml", "n001"} and sight.queues == {"a"}
    assert len(cluster.reviewed) == 4
    many = await asker.sight({f"n{n:03}" for n in range(500)}, ())
    assert many.namespaces == {"ml", "n001"}, "the own one first"
    assert len(cluster.reviewed) <= 4 + answers_api.NAMESPACES


# --- events as a stream -----------------------------------------------------------------------------------------------

SUBJECT = EventSubject("ml", "w", "Job", "w", "", "a", "a", 1, 1, ())


@pytest.fixture
def log(api: AggregatedApi) -> Log:
    kept = Log(lambda: clusters.NOW * 1000, most=5)
    api._answers._answers.log = kept
    return kept


async def lines(client: Client, query: str) -> AsyncIterator[Json]:
    """What a stream says, line by line."""
    url, host = f"https://127.0.0.1:{client.api.port}{OWN}/jobevents?{query}", "gangline-visibility.gangline-system.svc"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, ssl=client.context, server_hostname=host, headers=ALICE) as answer,
    ):
        assert answer.status == 200, await answer.text()
        async for line in answer.content:
            yield orjson.loads(line)


async def test_events_are_listed_and_followed_from_there(client: Client, log: Log) -> None:
    for number in range(3):
        log.add(f"before {number}", SUBJECT)
    _, first = await client.get(f"{OWN}/jobevents?limit=2")
    assert (first["kind"], [each["event"] for each in first["items"]]) == ("JobEventList", ["before 0", "before 1"])
    _, rest = await client.get(f"{OWN}/jobevents?continue={first['metadata']['continue']}")
    assert [each["event"] for each in rest["items"]] == ["before 2"] and "continue" not in rest["metadata"]
    stream = lines(client, f"watch=true&resourceVersion={rest['metadata']['resourceVersion']}")
    following = asyncio.ensure_future(anext(stream))
    while not client.api._answers._streams._clients:
        await asyncio.sleep(0.01)
    log.add("elsewhere", replace(SUBJECT, namespace="theirs"))
    log.add("after", SUBJECT)
    event = await following
    assert (event["type"], event["object"]["event"], event["object"]["kind"]) == ("ADDED", "after", "JobEvent")
    assert event["object"]["metadata"]["resourceVersion"] == str(log.last)
    await stream.aclose()


async def test_a_stream_ends_in_time_and_with_its_server(client: Client, api: AggregatedApi, log: Log) -> None:
    assert [line async for line in lines(client, "watch=1&allowWatchBookmarks=1&timeoutSeconds=1")] == []
    following = asyncio.ensure_future(anext(lines(client, "watch=true"), None))
    while not api._answers._streams._clients:
        await asyncio.sleep(0.01)
    await asyncio.wait_for(api.close(), 10)
    assert await following is None


async def test_a_silent_stream_gets_bookmarks(client: Client, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "BEAT", 0.01)
    log.add("elsewhere", replace(SUBJECT, namespace="theirs"))
    mark = await anext(lines(client, "watch=true&resourceVersion=0"))
    assert (mark["type"], mark["object"]["metadata"]) == ("BOOKMARK", {"resourceVersion": str(log.last)})


async def test_what_is_forgotten_gets_a_410(client: Client, log: Log) -> None:
    begun = log.last
    for number in range(9):
        log.add(str(number), SUBJECT)
    (told,) = [line async for line in lines(client, f"watch=true&resourceVersion={begun}")]
    assert (told["type"], told["object"]["code"], told["object"]["reason"]) == ("ERROR", 410, "Expired")
    status, body = await client.get(f"{OWN}/jobevents?continue={begun}")
    assert (status, body["reason"]) == (410, "Expired")


async def test_a_stream_asks_for_its_own_verb_and_ends_when_that_is_withdrawn(
    cluster: Cluster, client: Client, api: AggregatedApi, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "BEAT", 0.01)
    stream = lines(client, "watch=true")
    assert (await anext(stream))["type"] == "BOOKMARK"
    asked = cluster.reviewed[0]["resourceAttributes"]
    assert (asked["resource"], asked["verb"], asked["namespace"]) == ("jobevents", "watch", "ml")
    cluster.viewers.clear()
    api._answers._reviews._known = SharedRoom(REMEMBERED)
    said = [line async for line in stream]
    assert (said[-1]["type"], said[-1]["object"]["code"]) == ("ERROR", 403)


async def test_so_many_streams_and_no_more(client: Client, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "BEAT", 0.01)
    streams = [lines(client, "watch=true") for _ in range(event_stream.PER_USER)]
    for stream in streams:
        await anext(stream)
    status, body = await client.get(f"{OWN}/jobevents?watch=true")
    assert (status, body["reason"]) == (429, "TooManyRequests")
    for stream in streams:
        await stream.aclose()


# --- recorded decisions -----------------------------------------------------------------------------------------------


@pytest.fixture
def record(api: AggregatedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AuditReader]:
    """A record in which the engine of the answers decided once."""
    monkeypatch.setattr(audit_log, "FLUSH_EVERY", 0.002)
    written = AuditLog(tmp_path / "audit")
    answers = api._answers._answers
    engine = RecordedEngine(answers.source.engine.settings, written, at=clusters.NOW * 1000)
    for fact in answers.source.engine.facts():
        engine.observe(fact)
    engine.decide(clusters.NOW * 1000)
    written.close()
    reader = AuditReader(written.index, lambda: clusters.NOW * 1000)
    answers.source = replace(answers.source, record=reader)
    yield reader


async def test_decisions_are_listed_in_pages_and_opened_by_their_numbers(client: Client, record: AuditReader) -> None:
    _, whole = await client.get(f"{ROOT}/decisions")
    assert whole["metadata"] == {"from": clusters.NOW, "record": True} and len(whole["items"]) >= 2
    _, first = await client.get(f"{OWN}/decisions?limit=1")
    assert first["items"] == whole["items"][:1]
    _, second = await client.get(f"{OWN}/decisions?limit=1&continue={first['metadata']['continue']}")
    assert second["items"] == whole["items"][1:2]
    workload = whole["items"][1]["workload"]
    _, told = await client.get(f"{OWN}/decisions?workload={workload}")
    assert told["items"] == [row for row in whole["items"] if row["workload"] == workload]
    assert (await client.get(f"{OWN}/decisions?workload=none"))[1]["items"] == []
    assert (await client.get(f"{ROOT}/decisions?workload={workload}"))[0] == 400
    number = whole["items"][0]["number"]
    for path in (f"{OWN}/decisions/{number}/inputs", f"{ROOT}/decisions/{number}/inputs"):
        status, told = await client.get(path)
        assert (status, told["kind"], told["same"]) == (200, "DecisionInputs", True)
        assert told["decision"] == whole["items"][0] and told["inputs"]["workload"]["job"].startswith("gpujob/")
    status, told = await client.get(f"{OWN}/decisions/{number + 100}/inputs")
    assert (status, told["reason"]) == (404, "NotFound")


async def test_a_check_answers_at_once(client: Client, record: AuditReader) -> None:
    _, first = await client.get(f"{ROOT}/recordchecks")
    assert first["items"][0]["running"] and first["items"][0]["at"] is None
    while (told := (await client.get(f"{ROOT}/recordchecks"))[1]["items"][0])["running"]:
        await asyncio.sleep(0.02)
    assert (told["differing"], told["error"], told["rounds"]) == (0, "", 1) and told["at"] == clusters.NOW


async def test_a_replay_that_takes_too_long_is_given_up(
    client: Client, record: AuditReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, whole = await client.get(f"{ROOT}/decisions")
    monkeypatch.setattr(replay_process, "INPUTS_WITHIN", 0.001)
    status, told = await client.get(f"{OWN}/decisions/{whole['items'][0]['number']}/inputs")
    assert (status, told["reason"]) == (504, "Timeout") and "took more than" in told["message"]
