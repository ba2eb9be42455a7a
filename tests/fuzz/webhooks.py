"""The webhooks in this process: what they answer to any bytes, and what is wrong with an answer."""

from __future__ import annotations

import asyncio
import base64
import copy
import functools
from collections.abc import Iterator
from typing import Any

import orjson
from tests.builders.written import gpujob, job
from tests.fuzz import schemas
from tests.fuzz.draw import Draw
from tests.fuzz.objects import ODD, Json, annotated, edit, jobset, objects, review
from tests.webhooks.patching import apply

from gangline.api import names
from gangline.api.convert import conversion
from gangline.kube.errors import NotFound
from gangline.kube.resources import LOCAL_QUEUES, WORKLOAD_PRIORITY_CLASSES, Resource
from gangline_webhooks import envelope
from gangline_webhooks.app import Readiness, create_app
from gangline_webhooks.facts import Facts
from gangline_webhooks.intake import ReviewIntake

#: a request of a review and a conversion may have so many changes
MOST_EDITS = 12
VERSIONS = (names.V1BETA1, names.V1BETA2)


class Cluster:
    """In place of the API server: every queue is there, and every owner, which its author may have changed, too."""

    def __init__(self) -> None:
        self.owner: Json = {}
        self.reads = 0

    async def get(self, resource: Resource, namespace: str | None, name: str, *, within: float | None = None) -> Json:
        self.reads += 1
        if resource in (LOCAL_QUEUES, WORKLOAD_PRIORITY_CLASSES):
            if name.startswith("no"):
                raise NotFound(404, "NotFound", name)
            return {"metadata": {"name": name}}
        return copy.deepcopy(self.owner)

    def now(self) -> float:
        """Nothing that was read before is still believed."""
        return 100.0 * self.reads


class Webhooks:
    """The app with a loop of its own. Whatever it raises comes out of `post`."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        intake = ReviewIntake(
            envelope.ADMISSION.most_bytes, cpu=lambda: 0.0
        )  # nobody is refused for the time that fuzzing takes
        self.app: Any = create_app(Facts(self.cluster, self.cluster.now), Readiness(), intake=intake)
        self._loop = asyncio.new_event_loop()

    def routes(self) -> list[tuple[str, str]]:
        """Method and path of all that it serves."""
        return sorted((method, route.path) for route in self.app._app.routes for method in route.methods)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        query: bytes = b"",
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> tuple[int, bytes]:
        """Status and body of the answer."""
        head = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "https", "root_path": ""}
        scope = {**head, "method": method, "path": path, "raw_path": path.encode(), "query_string": query}
        scope |= {"headers": list(headers), "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)}
        asked = [{"type": "http.request", "body": body, "more_body": False}]
        answered: list[Json] = []

        async def receive() -> Json:
            return asked.pop() if asked else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            answered.append(message)

        self._loop.run_until_complete(self.app(scope, receive, send))
        return answered[0]["status"], b"".join(message.get("body", b"") for message in answered)


@functools.cache
def webhooks() -> Webhooks:
    return Webhooks()


# --- what is asked ----------------------------------------------------------------------------------------------------


def drawn_review(draw: Draw) -> bytes:
    """A review of an object of a known kind that was changed in some places, before or with this request."""
    obj = copy.deepcopy(draw.one_of(objects()))
    with_this, before = draw.below(4), draw.below(MOST_EDITS)
    owners = (annotated(job()), jobset(), gpujob())
    webhooks().cluster.owner = owner = owners[with_this % 3]
    owner["metadata"]["uid"] = "u"
    old: Any = None
    for count in range(MOST_EDITS):
        if count == before:
            old = copy.deepcopy(obj)
        if not draw.left:
            break
        edit(owner if with_this == 3 and count % 2 else obj, draw)
    return review(obj, (old, None, objects()[0], old)[with_this])


def drawn_conversion(draw: Draw) -> bytes:
    """A conversion of one to three objects of Kueue's kinds that were changed in some places."""
    known = [each for each in objects() if "kueue.x-k8s.io/v1beta" in each["apiVersion"]]
    wanted = draw.one_of((*VERSIONS, *VERSIONS, *map(str, ODD[:12])))
    objs: list[Json] = []
    for _ in range(1 + draw.below(3)):
        obj = copy.deepcopy(draw.one_of(known))
        for _ in range(draw.below(MOST_EDITS)):
            if draw.left:
                edit(obj, draw)
        objs.append(obj)
    return conversion_review(objs, wanted)


def conversion_review(objs: list[Json], wanted: str) -> bytes:
    request = {"uid": "u", "desiredAPIVersion": wanted, "objects": objs}
    return orjson.dumps({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request})


def whole_reviews() -> Iterator[bytes]:
    for obj in objects():
        yield review(obj, None)
        yield review(obj, obj)


def whole_conversions() -> Iterator[bytes]:
    for obj in objects():
        for wanted in VERSIONS:
            yield conversion_review([obj], wanted)


# --- what is answered -------------------------------------------------------------------------------------------------


def judge(path: str, body: bytes) -> None:
    """Asks and fails for an answer that an API server could not use, or that says that something broke."""
    status, answer = webhooks().ask("POST", path, body)
    assert status in (200, 400, 413), f"HTTP {status}: {answer[:300]!r}"
    if status != 200:
        assert 0 < len(answer) < 1000, f"{len(answer)} bytes of refusal"
        return
    said, asked = orjson.loads(answer), orjson.loads(body)
    assert (said["apiVersion"], said["kind"]) == (asked["apiVersion"], asked["kind"])
    assert said["response"]["uid"] == asked["request"]["uid"]
    if path == "/convert":
        _judge_conversion(said["response"], asked["request"])
        return
    patched = _judge_admission(said["response"], asked["request"])
    if patched is not None:
        _judge_again({**asked, "request": {**asked["request"], "object": patched}})


def _judge_admission(response: Json, request: Json) -> Json | None:
    """The object with the patch, if there is one."""
    assert isinstance(response["allowed"], bool)
    warnings = response.get("warnings", [])
    assert all(isinstance(warning, str) for warning in warnings), "a warning is no text"
    assert sum(map(len, warnings)) < 100_000, "endless warnings"
    if not response["allowed"]:
        status = response["status"]
        assert 400 <= status["code"] < 500, f"code {status['code']}: {status['message'][:300]}"
        assert isinstance(status["message"], str) and status["message"], "a refusal without words"
        assert len(status["message"]) < 1_000_000, "an endless refusal"
        if status["code"] == 413:  # it was not read
            return None
        assert status["details"]["causes"], "a refusal that names nothing"
        for cause in status["details"]["causes"]:
            assert all(isinstance(text, str) and text for text in cause.values()), f"not a cause: {cause}"
        assert all(isinstance(status["details"][name], str) for name in ("group", "kind", "name"))
    if "patch" not in response:
        return None
    assert response["patchType"] == "JSONPatch"
    return apply(request["object"], orjson.loads(base64.b64decode(response["patch"], validate=True)))


def _judge_again(asked: Json) -> None:
    """API servers ask once more after other webhooks: what is complete is left as it is."""
    _, answer = webhooks().ask("POST", "/mutate", orjson.dumps(asked))
    response = orjson.loads(answer)["response"]
    assert "patch" not in response, f"a second patch: {base64.b64decode(response['patch'])[:300]!r}"


def _judge_conversion(response: Json, request: Json) -> None:
    result, objs, wanted = response["result"], request["objects"], request["desiredAPIVersion"]
    if result["status"] == "Success":
        for before, after in zip(objs, response["convertedObjects"], strict=True):
            assert (after["apiVersion"], after["kind"]) == (wanted, before["kind"])
            if isinstance(before.get("metadata"), dict):
                assert _fixed(before["metadata"]) == _fixed(after["metadata"]), "metadata that nobody may change"
    else:
        assert result["status"] == "Failure"
        assert 0 < len(result["message"]) < 1000, "a failure without words, or with too many"
    for kept in filter(None, map(schemas.stored, objs)):
        if (kept["apiVersion"], wanted) == (names.V1BETA2, names.V1BETA1):
            _judge_stored(kept)


def _judge_stored(obj: Json) -> None:
    """One that fails, or that clients can't decode, would leave nobody able to list its kind."""
    shown = conversion.convert(obj, names.V1BETA1)
    assert schemas.decodes(shown), f"no client can decode {orjson.dumps(shown)[:500]!r}"
    assert schemas.annotations_fit(shown["metadata"]), "too many annotations for an API server"


def _fixed(meta: Json) -> Json:
    return {name: value for name, value in meta.items() if name not in ("labels", "annotations")}


#: path -> how a body for it is drawn, and whole ones; every other path takes reviews of objects
DRAWN = {"/convert": (drawn_conversion, whole_conversions)}
