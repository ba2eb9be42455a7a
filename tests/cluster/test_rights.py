"""Operator and webhooks as service accounts that have the rights `gangline rbac` prints, and no others."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, connect, flavor, gpu_job, job, local_queue

from gangline.console.stack import rights
from gangline.control.process.operator_process import ForecastOptions
from gangline.control.visibility.access_review import REVIEWS
from gangline.control.visibility.aggregated_api import Options
from gangline.kube import resources as kube
from gangline.kube.errors import Forbidden

pytestmark = pytest.mark.cluster
Json = dict[str, Any]


async def test_the_rights_that_are_printed_are_enough(system: System, api: Api, tmp_path: Any) -> None:
    """With everything that writes beyond jobs and queues: a lease, where the leader listens, the visibility API."""
    forecasts = ForecastOptions(str(tmp_path / "history.db"), tmp_path / "model.gz", use_model=False)
    visibility = Options(("127.0.0.1", 0), "127.0.0.1")
    operator = system.operator("rights", leader_election=True, forecasts=forecasts, visibility=visibility).wait_ready()
    await api.apply(flavor(), cluster_queue("cq", 2), local_queue("lq", "cq"))
    await api.create(job("holds", "lq", gpus=2, runtime="1h"))

    async def runs() -> bool:
        return (await api.get(kube.JOBS, "holds"))["spec"]["suspend"] is False

    await api.until(runs, "the first job runs")
    await api.create(job("waits", "lq", gpus=2))
    path = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads"

    async def told() -> bool:
        items = orjson.loads(await api.client.raw(path))["items"]
        return [item["metadata"]["ownerReferences"][0]["name"] for item in items] == ["waits"]

    await api.until(told, "the API server says who waits")
    await api.create(gpu_job("gang", "lq", workers=2))
    await api.apply(cluster_queue("cq", 6))
    await api.finished("waits")

    async def complete() -> bool:
        return condition(await api.get(kube.GPU_JOBS, "gang"), "Complete")

    await api.until(complete, "the GPUJob is complete")
    where = await api.get(kube.CONFIG_MAPS, "gangline-operator", "gangline-system")
    assert where["data"]["port"]
    assert any(event["reason"] == "Admitted" for event in await api.all(kube.EVENTS, "default"))
    assert operator.stop() == 0, operator.tail()  # that nothing was refused, every test's teardown looks at


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
