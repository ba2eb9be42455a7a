"""Any object of every served kind, in both versions, through every verb of a real API server with our webhooks.

What holds for all of them: no answer is 5xx, a refusal names a field, both versions agree, and to read an object in one version
and write it back changes nothing.
"""

from __future__ import annotations

import contextlib
import copy
import http.client
import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.controlplane import Kubectl
from tests.examples import examples
from tests.fuzz import kinds
from tests.webhooks.process import install_crds, running

from gangline.api import names
from gangline.api.convert import conversion
from gangline.devcluster.building import build
from gangline.devcluster.local import LocalControlPlane
from gangline.kube import config, resources

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
NAMESPACE = "default"
MERGE, APPLY, JSON_PATCH = "merge-patch", "apply-patch", "json-patch"
MEDIA = {
    MERGE: "application/merge-patch+json",
    APPLY: "application/apply-patch+yaml",
    JSON_PATCH: "application/json-patch+json",
}
NOTES = (names.V1BETA1_FIELDS, names.V1BETA2_FIELDS, names.LEGACY_RECLAIM)
#: what the API server itself says, with 500, of an applied object that does not fit the schema's types
UNTYPED = b"failed to create typed patch object"
#: what the API server says of a JSON patch that can't be applied
UNFITTING = "the server rejected our request due to an error in our request"
VERSIONS = (names.V1BETA1, names.V1BETA2)


def tries(number: int) -> settings:
    """`number` examples. A failing one is shown as it was drawn: to make it smaller takes a minute of requests."""
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    return examples(number, phases=phases, suppress_health_check=list(HealthCheck))


class Api:
    """One connection to the API server, as its administrator. Every answer of 5xx fails the test."""

    def __init__(self, plane: LocalControlPlane) -> None:
        self._login = config.load(plane.kubeconfig)
        self._connection = self._connected()
        self._numbers = itertools.count()

    def _connected(self) -> http.client.HTTPSConnection:
        host, _, port = self._login.server.removeprefix("https://").partition(":")
        return http.client.HTTPSConnection(host, int(port), context=self._login.ssl_context, timeout=30)

    def send(self, method: str, path: str, body: Any = None, media: str = "application/json") -> tuple[int, Json]:
        sent = json.dumps(body) if body is not None else None
        self._connection.request(method, path, sent, {"Content-Type": media, "Accept": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status == 500 and media == MEDIA[APPLY] and UNTYPED in text:
            return 400, json.loads(text)
        assert answer.status < 500, f"{method} {path}: {answer.status} {text[:600]!r} for {str(sent)[:2000]}"
        return answer.status, json.loads(text)

    def name(self) -> str:
        return f"any-{next(self._numbers)}"

    def listed(self, api_version: str, kind: str, more: str = "") -> Json:
        return self.send("GET", path_of(api_version, kind) + more)[1]

    def events(self, api_version: str, kind: str, since: str) -> list[Json]:
        """What a watch from this version on has seen by now."""
        query = f"?watch=1&resourceVersion={since}&timeoutSeconds=1&allowWatchBookmarks=false"
        connection = self._connected()
        connection.request("GET", path_of(api_version, kind) + query)
        with contextlib.closing(connection):
            return [json.loads(line) for line in connection.getresponse().read().splitlines()]

    def remove(self, api_version: str, kind: str, name: str) -> None:
        path = path_of(api_version, kind, name)
        self.send("PATCH", path, {"metadata": {"finalizers": None}}, MEDIA[MERGE])
        self.send("DELETE", path)


def path_of(api_version: str, kind: str, name: str = "") -> str:
    resource = resources.BY_KIND[kind]._replace(version=api_version.rpartition("/")[2])
    return resource.path(NAMESPACE if resource.namespaced else None, name)


@pytest.fixture(scope="module")
def api(plane: LocalControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    install_crds(Kubectl(build.kubectl(), plane.kubeconfig))
    with running(plane.kubeconfig, tmp_path_factory.mktemp("webhooks")):
        yield Api(plane)


def named(obj: Json, name: str) -> Json:
    """Whatever else stands in its metadata, it has this name and no other place."""
    meta = obj.get("metadata")
    meta = {**meta, "name": name} if isinstance(meta, dict) else {"name": name}
    for field in ("namespace", "uid", "resourceVersion", "generateName", "deletionTimestamp"):
        meta.pop(field, None)
    return {**obj, "metadata": meta}


def assert_names_a_field(status: int, answer: Json, sent: Any) -> None:
    """Of what the schema, a rule in CEL or a webhook refuses. Objects that can't be decoded are refused before (400)."""
    if answer.get("message") == UNFITTING:
        return
    if status in (403, 422):
        causes = (answer.get("details") or {}).get("causes") or ()
        assert any(cause.get("field") for cause in causes), f"{answer} for {json.dumps(sent)[:2000]}"
    else:
        assert answer.get("message"), answer


# --- every verb -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("api_version", "kind"), kinds.of_both())
@tries(4)
@given(data=st.data())
def test_any_write_is_taken_or_refused_in_words(api: Api, api_version: str, kind: str, data: st.DataObject) -> None:
    drawn = kinds.objects(api_version, kind)
    name = api.name()
    path = path_of(api_version, kind)
    obj = named(data.draw(kinds.changed(drawn)), name)
    status, stored = api.send("POST", path, obj)
    if status != 201:
        assert_names_a_field(status, stored, obj)
        obj = named(data.draw(drawn), name)
        status, stored = api.send("POST", path, obj)
    if status != 201:
        assert_names_a_field(status, stored, obj)
        return
    there = path_of(api_version, kind, name)
    body = without_head(data.draw(kinds.changed(drawn)))
    asserted(api, "PATCH", there, body, MERGE)
    asserted(api, "PATCH", there, data.draw(patches(stored)), JSON_PATCH)
    _, current = api.send("GET", there)
    asserted(api, "PUT", there, {**current, **without_head(data.draw(kinds.changed(drawn)))})
    if (statuses := kinds.statuses(api_version, kind)) is not None:
        asserted(api, "PATCH", f"{there}/status", {"status": data.draw(statuses)}, MERGE)
    applied = named(data.draw(kinds.changed(drawn)), name)
    asserted(api, "PATCH", f"{there}?fieldManager=any&force=true", applied, APPLY)
    if api_version in VERSIONS:
        assert_written_back_it_is_the_same(api, kind, name)
    api.remove(api_version, kind, name)


def asserted(api: Api, method: str, path: str, body: Any, media: str = "") -> None:
    status, answer = api.send(method, path, body, MEDIA.get(media, "application/json"))
    if status != 200:
        assert_names_a_field(status, answer, body)


def without_head(obj: Json) -> Json:
    return {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}


@st.composite
def patches(draw: st.DrawFn, stored: Json) -> list[Json]:
    """A few operations at places that are there, and at some that are not."""
    paths = [*_places({key: value for key, value in stored.items() if key == "spec"}), "/spec/nothing/here", "/spec"]
    values = (
        st.none()
        | st.booleans()
        | st.integers(-3, 99)
        | st.sampled_from(["x", "1", "", "a/b"])
        | st.just([])
        | st.just({})
    )
    one = st.builds(
        lambda op, path, value: {"op": op, "path": path} | ({"value": value} if op != "remove" else {}),
        st.sampled_from(["add", "replace", "remove", "test"]),
        st.sampled_from(paths),
        values,
    )
    return draw(st.lists(one, min_size=1, max_size=3))


def _places(value: Any, path: str = "") -> Iterator[str]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        here = f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"
        yield here
        yield from _places(each, here)


def assert_written_back_it_is_the_same(api: Api, kind: str, name: str) -> None:
    """A write that changes nothing stored leaves the resourceVersion as it is."""
    for version in VERSIONS:
        path = path_of(version, kind, name)
        _, seen = api.send("GET", path)
        assert seen["apiVersion"] == version
        status, answer = api.send("PUT", path, seen)
        if status == 200:
            assert answer["metadata"]["resourceVersion"] == seen["metadata"]["resourceVersion"], (seen, answer)
        else:
            assert_names_a_field(status, answer, seen)


@tries(40)
@given(data=st.data())
def test_any_job_is_taken_or_refused_in_words(api: Api, data: st.DataObject) -> None:
    obj = named(data.draw(kinds.changed(kinds.jobs())), api.name())
    status, answer = api.send("POST", path_of(obj["apiVersion"], obj["kind"]) + "?dryRun=All", obj)
    if status != 201:
        assert_names_a_field(status, answer, obj)


# --- two versions, one world ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", kinds.kueues())
@tries(6)
@given(data=st.data())
def test_both_versions_get_the_same_answer(api: Api, kind: str, data: st.DataObject) -> None:
    """v1beta1 lacks some limits of v1beta2, as in Kueue: there it may take what v1beta2 refuses by its schema."""
    first, second = data.draw(st.permutations(VERSIONS))
    obj = named(data.draw(kinds.changed(kinds.objects(first, kind))), api.name())
    other = in_other_version(obj, second)
    if other is None:
        return
    answers = {
        each["apiVersion"]: api.send("POST", path_of(each["apiVersion"], kind) + "?dryRun=All", each)
        for each in (obj, other)
    }
    old, new = answers[names.V1BETA1], answers[names.V1BETA2]
    if new[0] == 201:
        assert old[0] == 201, (obj, old)
        shown = conversion.convert(_without_identity(old[1]), names.V1BETA2)
        assert _without_identity(shown) == _without_identity(new[1])
    elif old[0] == 201:
        assert new[0] == 422, (obj, new)
    elif {old[0], new[0]} == {403}:
        assert _fields(old[1]) or _fields(new[1])


def in_other_version(obj: Json, wanted: str) -> Json | None:
    """The object as it is written there; None if one of the two can't say it.

    A Workload without pod sets is one of v1beta2 alone: only v1beta1 requires them, in Kueue, too.
    """
    if obj["kind"] == "Workload" and not (isinstance(spec := obj.get("spec"), dict) and "podSets" in spec):
        return None
    before = copy.deepcopy(obj)
    try:
        other = conversion.convert(obj, wanted)
        again = conversion.convert(other, obj["apiVersion"])
    except conversion.ConversionError:
        return None
    meta = other.get("metadata")
    noted = isinstance(meta, dict) and any(key in (meta.get("annotations") or {}) for key in NOTES)
    return None if noted or again != before else other


def _fields(answer: Json) -> set[str]:
    return {cause.get("field", "") for cause in (answer.get("details") or {}).get("causes") or ()}


def _without_identity(obj: Json) -> Json:
    meta = {
        key: value for key, value in obj["metadata"].items() if key in ("name", "labels", "annotations", "finalizers")
    }
    return {**obj, "metadata": meta}


@tries(1)
@given(data=st.data())
def test_two_clients_see_one_world(api: Api, data: st.DataObject) -> None:
    """Lists and watches in both versions show the same objects at the same resourceVersions, converted."""
    since = {kind: api.listed(names.V1BETA2, kind)["metadata"]["resourceVersion"] for kind in kinds.kueues()}
    made: list[tuple[str, str]] = []
    for kind in [*kinds.kueues(), *kinds.kueues()]:
        version = data.draw(st.sampled_from(VERSIONS))
        obj = named(data.draw(kinds.objects(version, kind)), api.name())
        if api.send("POST", path_of(version, kind), obj)[0] == 201:
            made.append((kind, obj["metadata"]["name"]))
    for kind, name in made[::2]:
        version = data.draw(st.sampled_from(VERSIONS))
        api.send("PATCH", path_of(version, kind, name), {"metadata": {"labels": {"team": "a"}}}, MEDIA[MERGE])
    for kind in kinds.kueues():
        old, new = (api.listed(version, kind)["items"] for version in VERSIONS)
        assert [conversion.convert(item, names.V1BETA1) for item in new] == old
    with ThreadPoolExecutor(len(VERSIONS) * len(since)) as pool:
        watches = {
            kind: [pool.submit(api.events, version, kind, since[kind]) for version in VERSIONS] for kind in since
        }
    for kind, (old, new) in watches.items():
        assert len(new.result()) >= sum(each == kind for each, _ in made)
        assert [_in_v1beta1(event) for event in new.result()] == old.result()
    for kind, name in made:
        api.remove(names.V1BETA2, kind, name)


def _in_v1beta1(event: Json) -> Json:
    return {**event, "object": conversion.convert(event["object"], names.V1BETA1)}
