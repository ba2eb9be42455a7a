"""Kueue's visibility API through a real API server: what kueuectl and dashboards call."""

from __future__ import annotations

import ssl
from typing import Any

import aiohttp
import orjson
import pytest
from tests.cluster import harness
from tests.cluster.conftest import System

from gangline.control.answers.api import api_service
from gangline.control.answers.api.access_review import HOLDS
from gangline.control.answers.api.aggregated_api import AggregatedApiOptions
from gangline.devcluster.components import Layout
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
GROUP = "/apis/visibility.kueue.x-k8s.io"
HERE = AggregatedApiOptions(("127.0.0.1", 0), "127.0.0.1")
VIEWER: list[Json] = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "pending-viewer"},
        "rules": [
            {
                "apiGroups": ["visibility.kueue.x-k8s.io"],
                "resources": ["localqueues/pendingworkloads"],
                "verbs": ["get"],
            }
        ],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "pending-viewer", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "pending-viewer"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    },
]


async def let_view(api: harness.Api) -> None:
    for body in VIEWER:
        meta = body["metadata"]
        resource = kube.Resource(*body["apiVersion"].split("/"), body["kind"].lower() + "s", "namespace" in meta)
        await api.client.patch(
            resource, meta.get("namespace"), meta["name"], body, kind="apply", field_manager="test", force=True
        )


async def names(api: harness.Api, path: str) -> list[str]:
    body = orjson.loads(await api.client.raw(GROUP + path))
    assert body["kind"] == "PendingWorkloadsSummary"
    return [item["metadata"]["ownerReferences"][0]["name"] for item in body["items"]]


async def test_who_waits_is_told_by_the_api_server(system: System, api: harness.Api) -> None:
    await let_view(api)
    operator = system.operator("seen", visibility=HERE).wait_ready()
    await api.apply(harness.flavor(), harness.cluster_queue("seen", 1), harness.local_queue("seen", "seen"))
    await api.create(harness.job("runs", "seen", runtime="600s"))
    await api.until(lambda: admitted(api, "runs"), "the first job runs")
    await api.create(harness.job("waits", "seen"))
    await api.create(harness.job("too", "seen"))

    async def both_listed() -> bool:
        return set(await names(api, "/v1beta2/clusterqueues/seen/pendingworkloads")) == {"waits", "too"}

    await api.until(both_listed, "the queue lists both")
    order = await names(api, "/v1beta2/clusterqueues/seen/pendingworkloads")  # of one second: by uid
    assert await names(api, "/v1beta1/clusterqueues/seen/pendingworkloads") == order
    assert await names(api, "/v1beta2/clusterqueues/seen/pendingworkloads?limit=1&offset=1") == order[1:]
    assert await names(api, "/v1beta2/namespaces/default/localqueues/seen/pendingworkloads") == order
    with pytest.raises(NotFound, match='clusterqueues "none" not found'):
        await names(api, "/v1beta2/clusterqueues/none/pendingworkloads")
    groups = orjson.loads(await api.client.raw("/apis"))["groups"]
    (group,) = [group for group in groups if group["name"] == "visibility.kueue.x-k8s.io"]
    assert [version["version"] for version in group["versions"]] == ["v1beta2", "v1beta1"]
    kinds = orjson.loads(await api.client.raw(f"{GROUP}/v1beta2"))["resources"]
    assert {"clusterqueues/pendingworkloads", "localqueues/pendingworkloads"} <= {kind["name"] for kind in kinds}
    await who_may_see_it(system, api)
    await endpoints_are_accepted(api)

    operator.kill()  # its registration stays, and is the next one's
    system.operator("seen-again", visibility=HERE).wait_ready()
    await api.until(both_listed, "the next operator tells it")
    assert system.running[-1].stop() == 0
    with pytest.raises(NotFound):
        await api.client.get(api_service.API_SERVICES, None, "v1beta2.visibility.kueue.x-k8s.io")


async def who_may_see_it(system: System, api: harness.Api) -> None:
    """As the aggregator one may name any user; what that user may see is for the API server to say."""
    registered = await api.client.get(api_service.API_SERVICES, None, "v1beta2.visibility.kueue.x-k8s.io")
    port = registered["spec"]["service"]["port"]
    local, whole = "namespaces/default/localqueues/seen", "clusterqueues/seen"
    assert await asked_directly(system, port, local, "") == 401
    with pytest.raises(aiohttp.ClientError):  # a user of the cluster, but not the aggregator
        await asked_directly(system, port, local, "admin")
    assert await asked_directly(system, port, whole, "front-proxy") == 403

    async def allowed() -> bool:  # the API server's RBAC looks at new bindings a moment later
        return await asked_directly(system, port, local, "front-proxy", user="alice") == 200

    await api.until(allowed, "alice may see her queue", seconds=HOLDS + 5)


async def asked_directly(system: System, port: int, queue: str, certificate: str, user: str = "bob") -> int:
    """The answer's status, past the API server, with one of the control plane's own certificates."""
    pki = Layout(system.kubeconfig.parent)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(pki.certificate(certificate), pki.key(certificate))
    headers = {"X-Remote-User": user, "X-Remote-Group": "system:authenticated"}
    url = f"https://127.0.0.1:{port}{GROUP}/v1beta2/{queue}/pendingworkloads"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=context) as answer:
        return answer.status


async def endpoints_are_accepted(api: harness.Api) -> None:
    """What is registered for an address that others reach: all of it as the API server wants it. Nothing is stored."""
    registration = api_service.Registration(api.client, {"visibility.kueue.x-k8s.io": ("v1beta2",)}, "gangline-system")
    for resource, body in registration.objects(api_service.Address("10.1.2.3", 8082), b"ca"):
        meta = body["metadata"]
        if resource == api_service.API_SERVICES:
            continue  # its bundle is a real one in other tests
        stored = await api.client.patch(
            resource,
            meta["namespace"],
            meta["name"],
            body,
            kind="apply",
            field_manager=api_service.FIELD_MANAGER,
            force=True,
            query={"dryRun": "All", "fieldValidation": "Strict"},
        )
        assert stored["metadata"]["labels"] == meta["labels"]


async def admitted(api: harness.Api, job: str) -> bool:
    workload = await api.workload_of(job)
    return workload is not None and harness.condition(workload, "Admitted")
