"""Jobs behind a check that asks a cluster autoscaler for nodes; the test is the autoscaler."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, condition, condition_row, flavor, job, local_queue

from gangline.api import names
from gangline.install.kinds import install_kinds
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound
from gangline.kube.resources import Resource

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
CRD = yaml.safe_load((Path(__file__).parents[1] / "data" / "provisioningrequests.yaml").read_text())
CLASS, POOL = "atomic.example.com", "example.com/pool"
CHECK = {
    "apiVersion": names.V1BETA2,
    "kind": "AdmissionCheck",
    "metadata": {"name": "nodes"},
    "spec": {
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {"apiGroup": names.GROUP, "kind": "ProvisioningRequestConfig", "name": "atomic"},
    },
}
CONFIG = {
    "apiVersion": names.V1BETA2,
    "kind": "ProvisioningRequestConfig",
    "metadata": {"name": "atomic"},
    "spec": {
        "provisioningClassName": CLASS,
        "parameters": {"ValidUntilSeconds": "0"},
        "managedResources": ["nvidia.com/gpu"],
        "retryStrategy": {"backoffLimitCount": 2, "backoffBaseSeconds": 1},
        "podSetUpdates": {"nodeSelector": [{"key": POOL, "valueFromProvisioningClassDetail": "Pool"}]},
    },
}


async def answer(api: Api, request: Json, kind: str, message: str, **details: str) -> None:
    """As the autoscaler answers: one more condition."""
    row = {"type": kind, "status": "True", "reason": kind, "message": message}
    rows = [
        *(request.get("status", {}).get("conditions") or ()),
        {**row, "lastTransitionTime": "2026-01-31T12:00:00Z"},
    ]
    request["status"] = {"conditions": rows} | ({"provisioningClassDetails": details} if details else {})
    meta = request["metadata"]
    body = {"status": request["status"]}
    await api.client.patch(kube.PROVISIONING_REQUESTS, meta["namespace"], meta["name"], body, subresource="status")


async def test_from_the_request_to_the_started_job_and_back(system: System, api: Api) -> None:
    """Failed → a second attempt → provisioned → the job starts on its nodes → they are revoked → it is deactivated; and the
    request of a deleted job goes with it. The kind is installed while the operator runs."""
    system.operator("asking", replaced={"gangline.control.process.watches:ABSENT_RETRY": 0.5}).wait_ready()
    checked = {"admissionChecks": [{"name": "nodes"}]}
    await api.apply(CONFIG, CHECK, flavor(), cluster_queue("cq", 8, admissionChecksStrategy=checked))
    await api.apply(local_queue("lq", "cq"))

    async def activity(reason: str) -> bool:
        found = await api.get(kube.ADMISSION_CHECKS, "nodes")
        return condition_row(found, "Active").get("reason") == reason

    async def request(attempt: int, of: str) -> Json | None:
        workload = await api.workload_of(of)
        if workload is None:
            return None
        name = f"{workload['metadata']['name']}-nodes-{attempt}"
        with suppress(NotFound):
            return await api.client.get(kube.PROVISIONING_REQUESTS, "default", name)
        return None

    async def no_request() -> bool:
        return not (await api.client.list(kube.PROVISIONING_REQUESTS, "default")).items

    try:
        await api.until(lambda: activity("NotServed"), "the check says that requests are not served")
        await install_kinds(api.client, [CRD])
        await api.until(lambda: activity("Active"), "the check is active")

        train = job("train", "lq", pods=2, gpus=2)
        train["metadata"]["annotations"] = {"provreq.kueue.x-k8s.io/zone": "b"}
        await api.create(train)
        first = await api.until(lambda: request(1, "train"), "nodes are requested")
        assert first["spec"]["parameters"] == {"ValidUntilSeconds": "0", "zone": "b"}
        [asked] = first["spec"]["podSets"]
        assert asked["count"] == 2

        async def template() -> Json | None:
            found = await api.client.get(kube.POD_TEMPLATES, "default", asked["podTemplateRef"]["name"])
            owner = found["metadata"]["ownerReferences"][0]
            return found if owner["uid"] == first["metadata"]["uid"] else None

        found = await api.until(template, "the request owns its template")
        assert found["template"]["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "2"}
        waiting = await api.workload_of("train") or {}
        assert condition(waiting, "QuotaReserved")
        assert not condition(waiting, "Admitted")

        await answer(api, first, "Failed", "out of stock")
        second = await api.until(lambda: request(2, "train"), "nodes are requested again")
        assert await request(1, "train") is None
        again = await api.workload_of("train") or {}
        [evictions] = again["status"]["schedulingStats"]["evictions"]
        assert (evictions["reason"], again["status"]["admissionChecks"][0]["retryCount"]) == ("AdmissionCheck", 1)

        await answer(api, second, "Accepted", "")
        await answer(api, second, "Provisioned", "2 nodes", Pool="p7")

        async def started() -> Json | None:
            found = await api.get(kube.JOBS, "train")
            return found if not found["spec"]["suspend"] else None

        running = await api.until(started, "the job starts")
        pods = running["spec"]["template"]
        assert pods["spec"]["nodeSelector"] == {POOL: "p7"}
        assert pods["metadata"]["annotations"]["autoscaling.x-k8s.io/provisioning-class-name"] == CLASS
        consumed = pods["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"]
        assert consumed == second["metadata"]["name"]

        await answer(api, second, "CapacityRevoked", "scaled down")

        async def deactivated() -> bool:
            found = await api.workload_of("train") or {}
            stopped = (await api.get(kube.JOBS, "train"))["spec"]["suspend"]
            reason = condition_row(found, "Evicted").get("reason")
            return stopped and not found["spec"]["active"] and reason == "DeactivatedDueToAdmissionCheck"

        await api.until(deactivated, "the job is stopped for good")
        await api.until(no_request, "its request is deleted")

        await api.create(job("brief", "lq"))
        await api.until(lambda: request(1, "brief"), "nodes are requested")
        await api.client.delete(kube.JOBS, "default", "brief", propagation="Background")
        await api.until(no_request, "the request goes with its job")
        events = {event["reason"] for event in await api.all(kube.EVENTS, "default")}
        assert {"ProvisioningRequestCreated", "AdmissionCheckUpdated"} <= events
    finally:
        await _remove(api, kube.ADMISSION_CHECKS, "nodes")
        await _remove(api, kube.PROVISIONING_CONFIGS, "atomic")
        await _remove(api, kube.CUSTOM_RESOURCE_DEFINITIONS, CRD["metadata"]["name"])


async def _remove(api: Api, resource: Resource, name: str) -> None:
    with suppress(NotFound):
        await api.client.delete(resource, None, name)


async def test_a_flavor_that_an_autoscaler_can_grow_is_found_and_bounded_by_quota(system: System, api: Api) -> None:
    """As a plain cluster autoscaler is used with Kueue: nodes come only once pods wait for them."""
    labels = {"gangline.io/node-pool": "gpu"}
    await api.apply(flavor(labels=labels), cluster_queue("cq", 1_000), local_queue("lq", "cq"))
    nodes = [
        node for node in await api.all(kube.NODES) if labels.items() <= (node["metadata"].get("labels") or {}).items()
    ]
    assert nodes
    system.operator().wait_ready()
    await api.create(job("wide", "lq", pods=len(nodes) + 1, gpus=8, runtime="1h"))

    async def waiting() -> bool:
        workload = await api.workload_of("wide")
        row = condition_row(workload, "QuotaReserved") if workload is not None else {}
        return row.get("reason") == "WaitingForCapacity"

    await api.until(waiting, "the nodes that there are bound it")
    written = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.0 +0000 UTC")
    status = (
        "autoscalerStatus: Running\nnodeGroups:\n- name: groups/gpu\n  health:\n    status: Healthy\n"
        f"    cloudProviderTarget: {len(nodes)}\n    minSize: 0\n    maxSize: 100\n"
    )
    meta = {
        "name": "cluster-autoscaler-status",
        "annotations": {"cluster-autoscaler.kubernetes.io/last-updated": written},
    }
    pool = {"metadata": {"labels": {"agentpool": "gpu"}}}
    name = nodes[0]["metadata"]["name"]
    await api.client.patch(kube.NODES, None, name, pool)
    await api.client.create(kube.CONFIG_MAPS, "kube-system", {"metadata": meta, "data": {"status": status}})
    try:
        await api.until(lambda: _admitted(api, "wide"), "nodes of its flavor can come")
    finally:
        await api.client.delete(kube.CONFIG_MAPS, "kube-system", "cluster-autoscaler-status")
        await api.client.patch(kube.NODES, None, name, {"metadata": {"labels": {"agentpool": None}}})


async def _admitted(api: Api, name: str) -> bool:
    workload = await api.workload_of(name)
    return workload is not None and condition(workload, "Admitted")
