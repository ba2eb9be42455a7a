"""What is registered, and that it stays registered."""

from __future__ import annotations

import base64
import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gangline.api import names
from gangline.api.read.configuration.managed_jobs import FRAMEWORKS, ManagedJobs
from gangline.api.schema.kinds import CONVERTED, KINDS
from gangline.kube import resources
from gangline.kube.client import NotFound, Resource
from gangline.tls import certificates
from gangline_webhooks import conditions, registration
from gangline_webhooks import registrar as withdrawal
from gangline_webhooks.comparison import contains
from gangline_webhooks.registrar import Registrar, WithdrawnError
from gangline_webhooks.registration import Endpoint, GatedPods

Json = dict[str, Any]
LOCAL = Endpoint(url="https://127.0.0.1:9443")
SERVICE = Endpoint(service="gangline-webhooks", namespace="gangline-system")


def webhooks(endpoint: Endpoint = LOCAL, bundle: bytes | None = b"CA") -> list[Json]:
    both = registration.configurations(endpoint, bundle)
    return [webhook for configuration in both.values() for webhook in configuration["webhooks"]]


def pairs(webhook: Json) -> set[str]:
    return {
        f"{operation} {resource}.{version}"
        for rule in webhook["rules"]
        for operation in rule["operations"]
        for resource in rule["resources"]
        for version in rule["apiVersions"]
    }


@pytest.mark.parametrize("webhook", webhooks(), ids=lambda webhook: webhook["name"])
def test_no_webhook_is_in_the_way(webhook: Json):
    assert webhook["timeoutSeconds"] <= 5
    assert webhook["sideEffects"] == "None"
    assert webhook["admissionReviewVersions"] == ["v1"]
    assert webhook["matchPolicy"] == ("Exact" if webhook["name"].startswith("legacy-") else "Equivalent")
    assert webhook["matchConditions"]
    named = {resource for rule in webhook["rules"] for resource in rule["resources"]}
    assert not named & {"pods", "*", "jobs/status", "*/*"}
    assert {resource for resource in named if "/" in resource} <= {"workloads/status"}
    assert {operation for rule in webhook["rules"] for operation in rule["operations"]} <= {"CREATE", "UPDATE"}
    if named & {"jobs", "jobsets", "gpujobs", "workloads", "localqueues"}:
        [requirement] = webhook["namespaceSelector"]["matchExpressions"]
        assert requirement["operator"] == "NotIn"
        assert set(requirement["values"]) == set(names.EXCLUDED_NAMESPACES)


def test_where_all_jobs_are_managed_none_passes_unseen():
    usual = registration.configurations(LOCAL, b"CA")
    strict = registration.requiring_every_job(registration.configurations(LOCAL, b"CA"))
    lax = {
        webhook["name"]
        for resource in usual
        for webhook, other in zip(usual[resource]["webhooks"], strict[resource]["webhooks"], strict=True)
        if webhook != other
    }
    assert lax == {"other-jobs.mutating.gangline.io", "other-serving.mutating.gangline.io"}
    required = [w["failurePolicy"] for w in strict[resources.MUTATING_WEBHOOKS]["webhooks"] if w["name"] in lax]
    assert required == ["Fail", "Fail"]


def test_an_outage_can_only_stop_what_names_a_queue_or_claims_to_belong_to_such_or_is_configuration():
    required = {webhook["name"] for webhook in webhooks() if webhook["failurePolicy"] == "Fail"}
    assert required == {
        "configuration.mutating.gangline.io",
        "legacy-queues.mutating.gangline.io",
        "children.spec-suspend.mutating.gangline.io",
        "children.spec-rayclusterconfig-suspend.mutating.gangline.io",
        "children.spec-runpolicy-suspend.mutating.gangline.io",
        "queued-jobs.mutating.gangline.io",
        "queued-jobs.spec-suspend.mutating.gangline.io",
        "queued-jobs.spec-rayclusterconfig-suspend.mutating.gangline.io",
        "queued-jobs.spec-runpolicy-suspend.mutating.gangline.io",
        "queued-jobs.spec-suspend.validating.gangline.io",
        "queued-jobs.spec-rayclusterconfig-suspend.validating.gangline.io",
        "queued-jobs.spec-runpolicy-suspend.validating.gangline.io",
        "configuration.validating.gangline.io",
        "queued-jobs.validating.gangline.io",
        "queued-jobsets.validating.gangline.io",
        "queued-gpujobs.validating.gangline.io",
        "queued-serving.mutating.gangline.io",
        "queued-serving.validating.gangline.io",
        "workloads.validating.gangline.io",
        "workload-statuses.validating.gangline.io",
    }
    for webhook in webhooks():
        [condition] = webhook["matchConditions"]
        names_queue = f"(({conditions.NAMES_QUEUE})", f"(({conditions.NAMES_OR_NAMED_QUEUE})"
        if webhook["name"].startswith("children"):
            assert ".exists(o, o.?controller.orValue(false)" in condition["expression"]
        if webhook["failurePolicy"] == "Fail" and "jobs" in webhook["name"]:
            assert f"({condition['expression']}".startswith(names_queue)
        if webhook["failurePolicy"] == "Ignore":
            assert condition["expression"].startswith("(!(")
            assert webhook["timeoutSeconds"] == 2


def test_children_that_controllers_create_cause_no_call():
    """The operator's account is in its namespace, those of other controllers are not in that of their jobs."""
    for endpoint, exempt in ((LOCAL, "!false"), (SERVICE, "startsWith('system:serviceaccount:gangline-system:')")):
        found = [each for each in webhooks(endpoint) if each["name"].startswith("children.spec-suspend")]
        assert [exempt in each["matchConditions"][0]["expression"] for each in found] == [True]


def test_pods_pass_through_us_only_where_they_are_queued():
    usual, queued = (registration.configurations(LOCAL, b"CA", pods=each) for each in (GatedPods.NONE, GatedPods.ALL))
    added = {
        webhook["name"]: webhook
        for resource, configuration in queued.items()
        for webhook in configuration["webhooks"]
        if webhook not in usual[resource]["webhooks"]
    }
    assert sorted(added) == [
        "other-pods.mutating.gangline.io",
        "queued-pods.mutating.gangline.io",
        "queued-pods.validating.gangline.io",
    ]
    assert {resource for each in added.values() for rule in each["rules"] for resource in rule["resources"]} == {"pods"}
    assert all(each["namespaceSelector"] for each in added.values())
    assert added["other-pods.mutating.gangline.io"]["failurePolicy"] == "Ignore"
    strict = registration.requiring_every_job(queued)[resources.MUTATING_WEBHOOKS]["webhooks"]
    assert {webhook["failurePolicy"] for webhook in strict if "pods" in webhook["name"]} == {"Fail"}


def test_where_only_owners_are_queued_by_their_pods_other_pods_pass():
    usual, held = (registration.configurations(LOCAL, b"CA", pods=each) for each in (GatedPods.NONE, GatedPods.HELD))
    added = [each for kind in held for each in held[kind]["webhooks"] if each not in usual[kind]["webhooks"]]
    assert [each["name"] for each in added] == [
        "queued-pods.mutating.gangline.io",
        "queued-pods.validating.gangline.io",
    ]
    assert all("pod-suspending-parent" in each["matchConditions"][0]["expression"] for each in added)
    assert GatedPods.of(ManagedJobs(unlisted=frozenset(FRAMEWORKS.values()))) is GatedPods.NONE
    assert (
        GatedPods.of(ManagedJobs(unlisted=frozenset(FRAMEWORKS.values()) - {FRAMEWORKS["statefulset"]}))
        is GatedPods.HELD
    )
    assert GatedPods.of(ManagedJobs(unlisted=frozenset())) is GatedPods.ALL


def test_cluster_queues_arrive_in_the_version_they_were_written_in():
    mutating, legacy = registration.configurations(LOCAL, b"CA")[resources.MUTATING_WEBHOOKS]["webhooks"][:2]
    assert pairs(mutating) == {
        "CREATE clusterqueues.v1beta1",
        "CREATE clusterqueues.v1beta2",
        "CREATE resourceflavors.v1beta1",
        "CREATE resourceflavors.v1beta2",
    }
    assert pairs(legacy) == {"UPDATE clusterqueues.v1beta1"}


def test_every_version_that_is_served_arrives_as_it_was_written():
    """Only a version that no rule lists is converted for us."""
    served = {f"{kind.plural}.{kind.group}": {version.name for version in kind.versions} for kind in KINDS}
    for webhook in webhooks():
        for rule in webhook["rules"] if webhook["matchPolicy"] == "Equivalent" else ():
            for resource in rule["resources"]:
                kind = f"{resource.partition('/')[0]}.{rule['apiGroups'][0]}"
                assert set(rule["apiVersions"]) == served.get(kind, set(rule["apiVersions"])), kind


def test_how_we_are_reached():
    [*_, url] = webhooks(LOCAL)
    assert url["clientConfig"] == {
        "url": "https://127.0.0.1:9443/validate",
        "caBundle": base64.b64encode(b"CA").decode(),
    }
    [*_, service] = webhooks(SERVICE, None)
    assert service["clientConfig"] == {
        "service": {"name": "gangline-webhooks", "namespace": "gangline-system", "port": 443, "path": "/validate"}
    }
    conversion = registration.conversion(LOCAL, b"CA")
    assert conversion["webhook"]["clientConfig"]["url"] == "https://127.0.0.1:9443/convert"


def test_what_the_server_fills_in_is_no_difference():
    wanted = {"a": [{"b": 1}], "c": "x"}
    assert contains({"a": [{"b": 1, "default": True}], "c": "x", "more": 1}, wanted)
    for live in ({"a": [{"b": 2}], "c": "x"}, {"a": [], "c": "x"}, {"a": [{"b": 1}]}, {"a": {}, "c": "x"}, None):
        assert not contains(live, wanted)


class Server:
    """Objects by resource and name; fills in defaults as the API server does; counts writes."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self.writes: list[str] = []

    def install_crds(self) -> None:
        for kind in CONVERTED:
            self.objects["customresourcedefinitions", kind.name] = {
                "metadata": {"name": kind.name, "annotations": {"mine": "yes"}},
                "spec": {"conversion": {"strategy": "None"}, "names": {}},
            }

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        try:
            return copy.deepcopy(self.objects[resource.plural, name])
        except KeyError:
            raise NotFound(404) from None

    async def create(self, resource: Resource, namespace: str | None, body: Json) -> Json:
        return self._store("create", resource, body["metadata"]["name"], body)

    async def replace(self, resource: Resource, namespace: str | None, name: str, body: Json) -> Json:
        return self._store("replace", resource, name, body)

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Any, *, kind: str = "merge"
    ) -> Json:
        obj = copy.deepcopy(self.objects[resource.plural, name])
        if kind == "json":
            [operation] = body
            assert operation["path"] == "/spec/conversion"
            obj["spec"]["conversion"] = operation["value"]
        else:
            obj["metadata"]["annotations"] |= body["metadata"]["annotations"]
            if "spec" in body:
                changed = obj["spec"]["conversion"] | body["spec"]["conversion"]
                obj["spec"]["conversion"] = {name: value for name, value in changed.items() if value is not None}
        return self._store("patch", resource, name, obj)

    async def delete(self, resource: Resource, namespace: str | None, name: str) -> Json:
        if self.objects.pop((resource.plural, name), None) is None:
            raise NotFound(404)
        return {}

    def _store(self, verb: str, resource: Resource, name: str, body: Json) -> Json:
        stored = copy.deepcopy(body)
        for webhook in stored.get("webhooks") or []:
            webhook.setdefault("objectSelector", {})
            webhook.setdefault("namespaceSelector", {})
        self.objects[resource.plural, name] = stored
        self.writes.append(f"{verb} {resource.plural}")
        return stored


def registrar(server: Server, endpoint: Endpoint = LOCAL, inject_from: str = "") -> Registrar:
    return Registrar(server, endpoint, inject_from)  # pyright: ignore


def bundles(server: Server) -> set[str]:
    found: set[str] = set()
    for (plural, _), obj in server.objects.items():
        if plural == "customresourcedefinitions":
            found.add(obj["spec"]["conversion"]["webhook"]["clientConfig"].get("caBundle", ""))
        elif plural.endswith("webhookconfigurations"):
            found |= {webhook["clientConfig"].get("caBundle", "") for webhook in obj["webhooks"]}
    return found


async def test_registering_again_writes_nothing():
    server = Server()
    server.install_crds()
    assert await registrar(server).ensure(b"CA") == []
    assert len(server.writes) == 2 + 2 + len(CONVERTED)
    server.writes.clear()
    assert await registrar(server).ensure(b"CA") == []
    assert server.writes == []


async def test_a_new_bundle_goes_everywhere():
    server = Server()
    server.install_crds()
    await registrar(server).ensure(b"old")
    await registrar(server).ensure(b"old and new")
    assert bundles(server) == {base64.b64encode(b"old and new").decode()}


async def test_what_others_change_is_mended():
    server = Server()
    server.install_crds()
    await registrar(server).ensure(b"CA")
    wanted = copy.deepcopy(server.objects)
    server.objects["mutatingwebhookconfigurations", "gangline"]["webhooks"][1]["failurePolicy"] = "Ignore"
    del server.objects["validatingwebhookconfigurations", "gangline"]["webhooks"][0]
    await registrar(server).ensure(b"CA")
    for key in wanted:
        assert contains(server.objects[key], wanted[key])


async def test_crds_that_are_missing_are_named():
    server = Server()
    assert set(await registrar(server).ensure(b"CA")) == {kind.name for kind in CONVERTED}
    server.install_crds()
    assert await registrar(server).ensure(b"CA") == []


async def test_what_cert_manager_injects_survives_us():
    server = Server()
    server.install_crds()
    by_manager = registrar(server, SERVICE, "gangline-system/webhooks")
    await by_manager.ensure(None)
    configuration = server.objects["mutatingwebhookconfigurations", "gangline"]
    assert configuration["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "gangline-system/webhooks"}
    crd = server.objects["customresourcedefinitions", CONVERTED[0].name]
    assert crd["metadata"]["annotations"] == {
        "mine": "yes",
        "cert-manager.io/inject-ca-from": "gangline-system/webhooks",
    }
    for webhook in configuration["webhooks"]:
        webhook["clientConfig"]["caBundle"] = "INJECTED"
    crd["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = "INJECTED"
    configuration["webhooks"][0]["timeoutSeconds"] = 30
    crd["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"] = 1
    await by_manager.ensure(None)
    configuration = server.objects["mutatingwebhookconfigurations", "gangline"]
    assert configuration["webhooks"][0]["timeoutSeconds"] == 5
    assert {webhook["clientConfig"]["caBundle"] for webhook in configuration["webhooks"]} == {"INJECTED"}
    client_config = server.objects["customresourcedefinitions", CONVERTED[0].name]["spec"]["conversion"]["webhook"][
        "clientConfig"
    ]
    assert (client_config["caBundle"], client_config["service"]["port"]) == ("INJECTED", 443)


async def test_unregistering():
    server = Server()
    server.install_crds()
    await registrar(server).ensure(b"CA")
    await withdrawal.remove(server)  # pyright: ignore
    await withdrawal.remove(server)  # pyright: ignore
    assert {plural for plural, _ in server.objects} == {"customresourcedefinitions"}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(withdrawal, "UNDER_WAY", 0.0)


@pytest.mark.usefixtures("at_once")
async def test_a_withdrawal_ends_the_conversion_and_lasts_for_processes_that_ran_already():
    server = Server()
    server.install_crds()
    old = registrar(server, SERVICE)
    await old.ensure(b"CA")
    now = datetime.now(UTC) + timedelta(seconds=1)
    await withdrawal.withdraw(server, SERVICE, now)  # pyright: ignore
    assert {plural for plural, _ in server.objects} == {"customresourcedefinitions"}
    for crd in server.objects.values():
        assert crd["spec"]["conversion"] == {"strategy": "None"}
        assert crd["metadata"]["annotations"]["mine"] == "yes"
    with pytest.raises(WithdrawnError):
        await old.ensure(b"CA")
    assert {plural for plural, _ in server.objects} == {"customresourcedefinitions"}
    new = Registrar(server, SERVICE, started=now + timedelta(seconds=1))  # pyright: ignore
    assert await new.ensure(b"CA") == []
    assert ("mutatingwebhookconfigurations", "gangline") in server.objects


@pytest.mark.usefixtures("at_once")
async def test_a_conversion_by_others_survives_a_withdrawal():
    server = Server()
    server.install_crds()
    kueues = Endpoint(service="kueue-webhook-service", namespace="kueue-system")
    await registrar(server, kueues).ensure(b"CA")
    await withdrawal.withdraw(server, SERVICE)  # pyright: ignore
    for (plural, _), obj in server.objects.items():
        if plural == "customresourcedefinitions":
            assert obj["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["name"] == kueues.service


@pytest.mark.parametrize(
    ("mark", "withdrawn"),
    [
        ("1795521610000", True),
        ("1795521590000", False),  # before this process was started
        ("1795518000000", False),
        ("-1795521610000", False),
        ("yesterday", False),
        ("", False),
        ("9" * 1000, False),
    ],
)
def test_which_marks_count(mark: str, withdrawn: bool):
    crd = {"metadata": {"annotations": {names.WEBHOOKS_WITHDRAWN: mark}}}
    since = datetime(2026, 11, 24, 12, tzinfo=UTC)
    assert withdrawal.was_withdrawn(crd, since, since + timedelta(minutes=1)) is withdrawn
    assert not withdrawal.was_withdrawn(crd, since, since + timedelta(hours=1)), "clocks do not differ by that much"


async def test_a_certificate_is_trusted_once_its_ca_is_registered():
    server = Server()
    server.install_crds()
    held, other = (certificates.create(certificates.ServerNames(("x",)), datetime.now(UTC)) for _ in range(2))
    ours = registrar(server)
    await ours.ensure(other.bundle)
    assert not await ours.trusts(held.serving.certificate)
    await ours.ensure(other.bundle + held.bundle)
    assert await ours.trusts(held.serving.certificate)
    name = CONVERTED[-1].name
    registered = server.objects["customresourcedefinitions", name]
    server.objects["customresourcedefinitions", name] = {"metadata": {"name": name}, "spec": {}}
    assert not await ours.trusts(held.serving.certificate), "a kind that was installed just now has no conversion yet"
    server.objects["customresourcedefinitions", name] = registered
    await registrar(server, SERVICE, "ns/name").ensure(None)
    for webhook in server.objects["validatingwebhookconfigurations", "gangline"]["webhooks"]:
        webhook["clientConfig"].pop("caBundle", None)
    assert not await ours.trusts(held.serving.certificate), "cert-manager has not injected it everywhere yet"


async def test_what_is_registered_is_owned_by_the_installed_role():
    server = Server()
    server.install_crds()
    role = {"metadata": {"name": "gangline-webhooks", "uid": "u1"}}
    server.objects["clusterroles", "gangline-webhooks"] = role
    await registrar(server).ensure(b"CA")
    role["metadata"]["uid"] = "u2"  # installed anew
    await registrar(server).ensure(b"CA")
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        [owner] = server.objects[plural, "gangline"]["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("ClusterRole", "gangline-webhooks", "u2")
