"""The visibility API as the aggregator asks for it: over TLS, for users that the API server names."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.builders import clusters

from gangline.control.answers.api import front_proxy
from gangline.control.answers.api.access_review import HOLDS, REMEMBERED, REVIEWS, ResourceAttributes, Reviews
from gangline.control.answers.api.aggregated_api import AT_ONCE, PER_USER, AggregatedApi, AggregatedApiOptions
from gangline.control.answers.api.api_service import API_SERVICES, Address, Registration
from gangline.control.answers.api.front_proxy import FrontProxyError, UnauthenticatedError, User
from gangline.control.answers.api.pending_view import NoQueueError, PendingPage
from gangline.control.answers.usage.happenings import Log
from gangline.devcluster.certs import Authority
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound, Unavailable

Json = dict[str, Any]
ROOT = "/apis/visibility.kueue.x-k8s.io/v1beta2"
QUEUE = f"{ROOT}/clusterqueues/cq/pendingworkloads"
PROXY, STRANGER = Authority.create("front-proxy-ca"), Authority.create("another-ca")
AUTHENTICATION: dict[str, str] = {
    "requestheader-client-ca-file": PROXY.pair.certificate.decode(),
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}


class Cluster:
    """What the operator asks of the API server here: whom to trust, who may see what; and what it registers."""

    def __init__(self) -> None:
        self.authentication: dict[str, str] | None = dict(AUTHENTICATION)
        self.reviewed: list[Json] = []
        self.viewers = {"alice"}
        self.silent = False
        self.objects: dict[tuple[str, str], Json] = {}

    async def get(self, resource: kube.Resource, namespace: str | None, name: str, **_: Any) -> Json:
        if resource == kube.CONFIG_MAPS:
            assert (namespace, name) == ("kube-system", "extension-apiserver-authentication")
            if self.authentication is not None:
                return {"data": self.authentication}
        elif found := self.objects.get((resource.kind, name)):
            return found
        raise NotFound(404, "NotFound", f"{name} not found")

    async def create(self, resource: kube.Resource, namespace: str | None, body: Json, **_: Any) -> Json:
        assert (resource, namespace) == (REVIEWS, None)
        if self.silent:
            raise Unavailable(0, "Timeout", "no answer")
        self.reviewed.append(body["spec"])
        return {**body, "status": {"allowed": body["spec"]["user"] in self.viewers}}

    async def patch(self, resource: kube.Resource, namespace: str | None, name: str, body: Json, **_: Any) -> Json:
        version = str(len(self.objects))
        self.objects[resource.kind, name] = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
        return body

    async def delete(self, resource: kube.Resource, namespace: str | None, name: str, **_: Any) -> Json:
        return self.objects.pop((resource.kind, name))


class Queue:
    """A Visibility with one ClusterQueue, in which as many wait as the page has room for."""

    def __init__(self) -> None:
        self.at_once = [0]

    async def pending(self, queue: str, namespace: str, page: PendingPage) -> list[Json]:
        if queue != "cq":
            raise NoQueueError(queue)
        self.at_once.append(self.at_once[-1] + 1)
        await asyncio.sleep(0.01)
        self.at_once.append(self.at_once[-1] - 1)
        return [{"metadata": {"name": f"w{n}"}} for n in range(page.offset, page.offset + min(page.limit, 2))]


def made(cluster: Any, port: int = 0) -> AggregatedApi:
    queue: Any = Queue()
    answers = clusters.busy().answers()
    return AggregatedApi(
        cluster,
        queue,
        AggregatedApiOptions(("127.0.0.1", port), "localhost"),
        "gangline-system",
        answers=answers,
        accuracy=accuracy,
    )


def accuracy() -> Json:
    return {"runtimes": [], "since": None, "model": {}, "starts": {}}


@asynccontextmanager
async def serving(cluster: Any) -> AsyncIterator[AggregatedApi]:
    api = made(cluster)
    await api._upkeep()
    try:
        yield api
    finally:
        await api.close()


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[AggregatedApi]:
    async with serving(cluster) as served:
        yield served


def trusting(
    cluster: Cluster, directory: Path, client: Authority | None, name: str = "front-proxy-client"
) -> ssl.SSLContext:
    """A client that trusts what is registered, as API servers do, and shows a certificate that `client` has signed."""
    import base64

    bundle = cluster.objects["APIService", "v1beta2.visibility.kueue.x-k8s.io"]["spec"]["caBundle"]
    context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
    if client is not None:
        context.load_cert_chain(*client.issue_client(name).save(directory, name))
    return context


async def ask(api: AggregatedApi, context: ssl.SSLContext, path: str, **headers: str) -> tuple[int, Json]:
    host = "gangline-visibility.gangline-system.svc"
    async with (
        aiohttp.ClientSession() as session,
        session.get(
            f"https://127.0.0.1:{api.port}{path}", ssl=context, server_hostname=host, headers=headers
        ) as answer,
    ):
        return answer.status, await answer.json()


ALICE = {"X-Remote-User": "alice", "X-Remote-Group": "system:authenticated"}


async def test_what_the_aggregator_passes_on_is_answered_for_those_who_may_see_it(
    cluster: Cluster, api: AggregatedApi, tmp_path: Path
) -> None:
    context = trusting(cluster, tmp_path, PROXY)
    status, body = await ask(api, context, QUEUE + "?limit=1&offset=3", **ALICE)
    assert (status, body["kind"], body["apiVersion"]) == (
        200,
        "PendingWorkloadsSummary",
        "visibility.kueue.x-k8s.io/v1beta2",
    )
    assert [item["metadata"]["name"] for item in body["items"]] == ["w3"]
    old = QUEUE.replace("v1beta2", "v1beta1")
    assert (await ask(api, context, old, **ALICE))[1]["apiVersion"] == "visibility.kueue.x-k8s.io/v1beta1"
    status, body = await ask(api, context, QUEUE, **{"X-Remote-User": "mallory"})
    assert (status, body["reason"]) == (403, "Forbidden") and '"mallory"' in body["message"]
    assert cluster.reviewed[0] == {
        "user": "alice",
        "groups": ["system:authenticated"],
        "uid": "",
        "extra": {},
        "resourceAttributes": {
            "verb": "get",
            "group": "visibility.kueue.x-k8s.io",
            "version": "v1beta2",
            "resource": "clusterqueues",
            "subresource": "pendingworkloads",
            "name": "cq",
        },
    }


async def test_of_a_local_queue_it_is_asked_in_its_namespace(
    cluster: Cluster, api: AggregatedApi, tmp_path: Path
) -> None:
    path = f"{ROOT}/namespaces/ml/localqueues/cq/pendingworkloads"
    assert (await ask(api, trusting(cluster, tmp_path, PROXY), path, **ALICE))[0] == 200
    said = cluster.reviewed[0]["resourceAttributes"]
    assert (said["namespace"], said["resource"], said["name"]) == ("ml", "localqueues", "cq")


async def test_nobody_else_is_answered(cluster: Cluster, api: AggregatedApi, tmp_path: Path) -> None:
    nobody, other = trusting(cluster, tmp_path, None), trusting(cluster, tmp_path, PROXY, "somebody-else")
    assert (await ask(api, nobody, QUEUE, **ALICE))[0] == 401
    status, body = await ask(api, other, QUEUE, **ALICE)
    assert status == 401 and "'somebody-else'" in body["message"]
    assert (await ask(api, trusting(cluster, tmp_path, PROXY), QUEUE))[1][
        "message"
    ] == "the request names no user in X-Remote-User"
    with pytest.raises(aiohttp.ClientError):  # the handshake fails
        await ask(api, trusting(cluster, tmp_path, STRANGER), QUEUE, **ALICE)
    assert (await ask(api, nobody, ROOT))[0] == 401
    assert cluster.reviewed == []


@pytest.mark.parametrize(
    ("path", "code", "reason", "words"),
    [
        (f"{ROOT}/clusterqueues/none/pendingworkloads", 404, "NotFound", 'clusterqueues "none" not found'),
        (f"{QUEUE}?limit=many", 400, "BadRequest", "limit must be a whole number, not 'many'"),
        (f"{QUEUE}?offset=x", 400, "BadRequest", "offset must be"),
        (f"{ROOT}/clusterqueues", 404, "NotFound", ""),
    ],
)
async def test_what_cannot_be_answered_is_a_status(
    cluster: Cluster, api: AggregatedApi, tmp_path: Path, path: str, code: int, reason: str, words: str
) -> None:
    status, body = await ask(api, trusting(cluster, tmp_path, PROXY), path, **ALICE)
    assert (status, body["kind"], body["code"], body["reason"]) == (code, "Status", code, reason)
    assert words in body["message"]


async def test_without_the_api_servers_word_nothing_is_shown(
    cluster: Cluster, api: AggregatedApi, tmp_path: Path
) -> None:
    cluster.silent = True
    status, body = await ask(api, trusting(cluster, tmp_path, PROXY), QUEUE, **ALICE)
    assert status == 500 and "items" not in body
    masters = {"X-Remote-User": "system:kube-aggregator", "X-Remote-Group": "system:masters"}
    assert (await ask(api, trusting(cluster, tmp_path, PROXY), QUEUE, **masters))[0] == 200


async def test_discovery_and_openapi_agree_with_what_is_served(
    cluster: Cluster, api: AggregatedApi, tmp_path: Path
) -> None:
    answers = api._answers._answers
    answers.log, answers.record = Log(lambda: 0), clusters.attempt_record(answers)
    context = trusting(cluster, tmp_path, PROXY)
    _, groups = await ask(api, context, "/apis", **ALICE)
    assert groups["groups"][0]["preferredVersion"]["version"] == "v1beta2"
    _, listed = await ask(api, context, ROOT, **ALICE)
    verbs = {resource["name"]: resource["verbs"] for resource in listed["resources"]}
    assert verbs["clusterqueues/pendingworkloads"] == verbs["localqueues/pendingworkloads"] == ["get"]
    _, index = await ask(api, context, "/openapi/v3", **ALICE)
    for where in index["paths"].values():
        _, document = await ask(api, context, where["serverRelativeURL"], **ALICE)
        for path, operations in document["paths"].items():
            name = "next" if "queuedjobs" in path else "cq"
            asked = path.replace("{namespace}", "ml").replace("{name}", name)
            if "get" in operations:
                # nobody keeps a ledger or a record here, there is no node, and live rows can only be watched
                wanted = {"promises": 501, "moves": 404, "inputs": 404, "liverows": 400}.get(
                    path.rpartition("/")[2], 200
                )
                assert (await ask(api, context, asked, **ALICE))[0] == wanted
    _, merged = await ask(api, context, "/openapi/v2", **ALICE)
    identities = [each["operationId"] for path in merged["paths"].values() for each in path.values()]
    assert len(identities) == len(set(identities))


async def test_another_ca_of_the_api_server_counts_from_the_next_look_on(
    cluster: Cluster, api: AggregatedApi, tmp_path: Path
) -> None:
    newer = {**AUTHENTICATION, "requestheader-client-ca-file": STRANGER.pair.certificate.decode()}
    cluster.authentication = newer
    await api._upkeep()
    assert (await ask(api, trusting(cluster, tmp_path, STRANGER), QUEUE, **ALICE))[0] == 200
    with pytest.raises(aiohttp.ClientError):
        await ask(api, trusting(cluster, tmp_path, PROXY), QUEUE, **ALICE)


async def test_at_the_end_only_our_own_registration_is_taken_back(cluster: Cluster) -> None:
    async with serving(cluster):
        assert sum(kind == "APIService" for kind, _ in cluster.objects) == 3
        ours = cluster.objects["APIService", "v1beta1.visibility.kueue.x-k8s.io"]
        ours["spec"] = {**ours["spec"], "caBundle": "of another leader"}
    assert [name for kind, name in cluster.objects if kind == "APIService"] == ["v1beta1.visibility.kueue.x-k8s.io"]


async def test_a_taken_port_is_told_at_once(cluster: Any, api: AggregatedApi) -> None:
    with pytest.raises(OSError, match="in use"):
        made(cluster, api.port)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"requestheader-client-ca-file": ""}, "has no aggregator"),
        ({"requestheader-allowed-names": "front-proxy"}, "requestheader-allowed-names"),
        ({"requestheader-group-headers": '{"a": 1}'}, "requestheader-group-headers is not a list"),
        ({"requestheader-username-headers": "[]"}, "names no header"),
    ],
)
def test_what_the_api_server_leaves_out_is_named(change: dict[str, str], words: str) -> None:
    with pytest.raises(FrontProxyError, match=words):
        front_proxy.parse({**AUTHENTICATION, **change})


async def test_a_broken_ca_is_named(cluster: Cluster) -> None:
    cluster.authentication = {**AUTHENTICATION, "requestheader-client-ca-file": "-----BEGIN CERTIFICATE-----\nnone"}
    with pytest.raises(FrontProxyError, match="requestheader-client-ca-file"):
        async with serving(cluster):
            pass


def test_a_user_is_all_that_the_headers_say() -> None:
    trust = front_proxy.parse(AUTHENTICATION)
    shown = {"subject": ((("organizationName", "x"),), (("commonName", "front-proxy-client"),))}
    headers = [
        ("x-remote-user", "alice"),
        ("X-Remote-Group", "a"),
        ("X-Remote-Group", "b"),
        ("X-Remote-Uid", "7"),
        ("X-Remote-Extra-Example.org%2Fscopes", "s1"),
        ("X-Remote-Extra-Example.org%2Fscopes", "s2"),
    ]
    assert trust.user(shown, headers) == User("alice", ("a", "b"), "7", (("example.org/scopes", ("s1", "s2")),))
    with pytest.raises(UnauthenticatedError):
        trust.user(shown, [("X-Remote-Group", "a")])


async def test_answers_about_access_hold_for_some_seconds(cluster: Any) -> None:
    now = 0.0
    reviews = Reviews(cluster, clock=lambda: now)
    access = ResourceAttributes("g", "v", "clusterqueues", "pendingworkloads", "cq")
    assert await reviews.allowed(User("alice"), access) and not await reviews.allowed(User("bob"), access)
    cluster.viewers = {"bob"}
    assert await reviews.allowed(User("alice"), access) and not await reviews.allowed(User("bob"), access)
    assert not await reviews.allowed(User("alice", ("staff",)), access)  # another user to the API server
    now = HOLDS
    assert not await reviews.allowed(User("alice"), access) and await reviews.allowed(User("bob"), access)
    assert len(cluster.reviewed) == 5


async def test_pages_of_one_user_do_not_take_the_time_of_all(
    cluster: Cluster, api: AggregatedApi, tmp_path: Path
) -> None:
    context = trusting(cluster, tmp_path, PROXY)
    found = await asyncio.gather(*(ask(api, context, QUEUE, **ALICE) for _ in range(20)))
    statuses = Counter(status for status, _ in found)
    assert statuses[429] == 20 - statuses[200]
    assert statuses[200] >= PER_USER
    queue: Any = api._visibility
    assert max(queue.at_once) == AT_ONCE


async def test_who_asks_about_many_names_makes_nobody_elses_answer_be_forgotten(cluster: Any) -> None:
    reviews = Reviews(cluster)
    mine = ResourceAttributes("g", "v", "queuedjobs", "", "mine", "ml")
    await reviews.allowed(User("alice"), mine)
    many = [User(f"system:serviceaccount:theirs:sa{number % 40}") for number in range(2 * REMEMBERED)]
    for number, user in enumerate(many):
        await reviews.allowed(user, ResourceAttributes("g", "v", "queuedjobs", "", f"job{number}", "theirs"))
    asked = len(cluster.reviewed)
    await reviews.allowed(User("alice"), mine)
    assert len(cluster.reviewed) == asked
    assert len(reviews._known) == REMEMBERED


def test_service_accounts_of_a_namespace_count_as_one() -> None:
    """Whoever may edit a namespace can make any number of them: eight streams of each took those of all users."""
    assert {User(f"system:serviceaccount:ml:sa{n}").account for n in range(9)} == {"system:serviceaccount:ml"}
    assert User("system:serviceaccount:x:sa").account != User("system:serviceaccount:ml:sa").account
    assert User("alice").account == "alice"


@pytest.mark.parametrize(
    ("host", "kinds", "port"),
    [
        ("10.0.0.7", ["Service", "Endpoints", "EndpointSlice", "APIService", "APIService"], 443),
        ("fd00::7", ["Service", "Endpoints", "EndpointSlice", "APIService", "APIService"], 443),
        ("127.0.0.1", ["Service", "APIService", "APIService"], 8082),
        ("operator.example.org", ["Service", "APIService", "APIService"], 8082),
    ],
)
def test_addresses_get_endpoints_and_names_an_alias(host: str, kinds: list[str], port: int) -> None:
    client: Any = None
    objects = Registration(client, {"g": ("v1", "v2")}, "ns").objects(Address(host, 8082), b"ca")
    assert [resource.kind for resource, _ in objects] == kinds
    assert objects[-1][1]["spec"]["service"] == {"namespace": "ns", "name": "gangline-visibility", "port": port}
    assert json.dumps(objects[1][1]).count(host) == (1 if len(kinds) == 5 else 0)
    service = objects[0][1]["spec"]
    assert service.get("externalName") == {"127.0.0.1": "localhost", "operator.example.org": host}.get(host)
    assert dict(objects)[API_SERVICES]["spec"]["caBundle"] == "Y2E="
