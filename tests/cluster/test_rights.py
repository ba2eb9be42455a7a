"""Operator and webhooks as service accounts that have the rights `gangline admin rbac` prints, and no others."""

from __future__ import annotations

import json
import re
from typing import Any

import aiohttp
import orjson
import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, connect, flavor, gpu_job, job, local_queue

from gangline.control.answers.api import api_service
from gangline.control.answers.api.access_review import REVIEWS
from gangline.control.answers.api.aggregated_api import AggregatedApiOptions
from gangline.control.process import metrics_endpoint
from gangline.control.process.operator_process import ForecastOptions
from gangline.install import rights
from gangline.kube import resources as kube
from gangline.kube.errors import Forbidden
from gangline.kube.ownership import CLUSTER_ROLES
from gangline.kube.resources import Resource

pytestmark = pytest.mark.cluster
Json = dict[str, Any]


async def test_the_rights_that_are_printed_are_enough(system: System, api: Api, tmp_path: Any) -> None:
    """With everything that writes beyond jobs and queues: a lease, where the leader listens, the visibility API."""
    forecasts = ForecastOptions(str(tmp_path / "history.db"), tmp_path / "model.gz", use_model=False)
    visibility = AggregatedApiOptions(("127.0.0.1", 0), "127.0.0.1")
    operator = system.operator("rights", leader_election=True, forecasts=forecasts, visibility=visibility).wait_ready()
    await api.apply(flavor(), cluster_queue("cq", 2), local_queue("lq", "cq"))
    await api.create(job("holds", "lq", gpus=2, runtime="1h"))

    async def runs() -> bool:
        return (await api.get(kube.JOBS, "holds"))["spec"]["suspend"] is False

    await api.until(runs, "the first job runs")
    await api.create(job("waits", "lq", gpus=2))
    path = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads"

    async def listed() -> bool:
        items = orjson.loads(await api.client.raw(path))["items"]
        return [item["metadata"]["ownerReferences"][0]["name"] for item in items] == ["waits"]

    await api.until(listed, "the API server says who waits")
    await api.create(gpu_job("gang", "lq", workers=2))
    await api.apply(cluster_queue("cq", 6))
    await api.finished("waits")

    async def complete() -> bool:
        return condition(await api.get(kube.GPU_JOBS, "gang"), "Complete")

    await api.until(complete, "the GPUJob is complete")
    where = await api.get(kube.CONFIG_MAPS, "gangline-operator", "gangline-system")
    assert where["data"]["port"]
    role = await api.get(CLUSTER_ROLES, rights.OPERATOR.name)
    for owned in (
        where,
        await api.get(kube.SERVICES, api_service.SERVICE, "gangline-system"),
        await api.get(api_service.API_SERVICES, "v1beta2.visibility.kueue.x-k8s.io"),
    ):
        [owner] = owned["metadata"]["ownerReferences"]
        assert owner["uid"] == role["metadata"]["uid"], "uninstalling removes it"
    assert any(event["reason"] == "Admitted" for event in await api.all(kube.EVENTS, "default"))
    assert operator.stop() == 0, operator.tail()  # that nothing was refused, every test's teardown looks at


async def test_metrics_are_read_by_whom_the_api_server_lets_read_them(system: System, api: Api) -> None:
    options = metrics_endpoint.MetricsEndpointOptions(("127.0.0.1", 0))
    operator = system.operator("secured", secured_metrics=options).wait_ready()
    metrics = {"apiVersion": f"{CLUSTER_ROLES.group}/v1", "metadata": {"name": "metrics-reader"}}
    rule = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    subject = {"kind": "ServiceAccount", "name": "scraper", "namespace": "default"}
    reference = {"apiGroup": CLUSTER_ROLES.group, "kind": "ClusterRole", "name": "metrics-reader"}
    bindings = Resource(CLUSTER_ROLES.group, "v1", "clusterrolebindings", namespaced=False)
    accounts = Resource("", "v1", "serviceaccounts")
    for name in ("scraper", "nosy"):
        await api.client.create(accounts, "default", {"metadata": {"name": name}})
    await api.client.create(CLUSTER_ROLES, None, {**metrics, "kind": "ClusterRole", "rules": [rule]})
    bound = {**metrics, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]}
    await api.client.create(bindings, None, bound)

    async def token(account: str) -> str:
        asked = Resource("", "v1", f"serviceaccounts/{account}/token")
        return (await api.client.create(asked, "default", {"spec": {}}))["status"]["token"]

    async def port() -> str:
        found = re.search(r"/metrics is served at https://127.0.0.1:(\d+)", operator.log.read_text())
        return found[1] if found else ""

    url = f"https://127.0.0.1:{await api.until(port, 'metrics are served')}/metrics"

    async def status(authorization: str) -> tuple[int, str]:
        headers = {"Authorization": authorization} if authorization else {}
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False, headers=headers) as answer:
            return answer.status, await answer.text()

    scraper, nosy = await token("scraper"), await token("nosy")

    async def allowed() -> bool:
        return (await status(f"Bearer {scraper}"))[0] == 200

    await api.until(allowed, "the role is known")
    assert "gangline_leader 1.0" in (await status(f"Bearer {scraper}"))[1]
    refused = (
        await status(""),
        await status("Basic abc"),
        await status(f"Bearer {nosy}x"),
        await status("Bearer Ünsinn"),
    )
    assert [code for code, _ in refused] == [401] * 4
    assert (await status(f"Bearer {nosy}"))[0] == 403
    plain = f"http://127.0.0.1:{json.loads(operator.ready_file.read_text())['port']}"
    async with aiohttp.ClientSession() as session:
        answers = [(await session.get(plain + path)).status for path in ("/metrics", "/healthz", "/readyz")]
    assert answers == [404, 200, 200], "metrics are nowhere else"
    assert operator.stop() == 0, operator.tail()


async def test_nothing_else_is_allowed(system: System, api: Api) -> None:
    """Secrets and nodes above all: an operator that somebody took over is no way into the cluster."""
    for namespace, verb, resource in (
        ("kube-system", "get", kube.SECRETS),
        ("gangline-system", "list", kube.SECRETS),
        ("default", "create", kube.PODS),
        ("default", "create", kube.SECRETS),
        ("default", "delete", kube.NODES),
        ("default", "patch", kube.NODES),
        ("default", "patch", kube.NAMESPACES),
        ("default", "update", kube.CUSTOM_RESOURCE_DEFINITIONS),
        ("default", "create", kube.CLUSTER_QUEUES),
        ("kube-system", "update", kube.CONFIG_MAPS),
    ):
        for account in rights.ACCOUNTS:
            if (verb, resource, account) == ("patch", kube.NODES, rights.OPERATOR):
                continue  # the tests choose that it may cordon them
            assert not await may(api, account.name, verb, resource, namespace), f"{account.name}: {verb} {resource}"
    assert await may(api, rights.OPERATOR.name, "delete", kube.PODS, "default"), "the question is asked well"
    async with connect(system.operators_login) as operator:
        with pytest.raises(Forbidden):
            await operator.client.list(kube.SECRETS, "kube-system")


async def may(api: Api, account: str, verb: str, resource: kube.Resource, namespace: str) -> bool:
    """What the API server's RBAC says of a service account."""
    user = f"system:serviceaccount:gangline-system:{account}"
    attributes = {"verb": verb, "group": resource.group, "resource": resource.plural}
    if resource.namespaced:
        attributes["namespace"] = namespace
    groups = ["system:serviceaccounts", "system:serviceaccounts:gangline-system", "system:authenticated"]
    spec = {"user": user, "groups": groups, "resourceAttributes": attributes}
    review = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "spec": spec}
    return (await api.client.create(REVIEWS, None, review))["status"]["allowed"]
