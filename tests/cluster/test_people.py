"""The roles of people on a real API server: the table of docs/roles.md is walked by reviews, and an author holds her own job."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.conftest import System
from tests.cluster.harness import Api, cluster_queue, flavor, job, local_queue
from tests.install.test_people import ROLES, rows

from gangline.api import names
from gangline.control.answers.api.access_review import REVIEWS
from gangline.install.kinds import install_roles
from gangline.kube import resources as kube

pytestmark = pytest.mark.cluster
Json = dict[str, Any]


def user_of(role: str) -> str:
    return role.removeprefix("gangline-").removesuffix("-role")


async def bind(api: Api, role: str) -> None:
    """Give a role as docs/roles.md does: an administrator's in the cluster, all others in the namespace."""
    everywhere = role == names.ADMINISTRATOR
    resource = kube.CLUSTER_ROLE_BINDINGS if everywhere else kube.ROLE_BINDINGS
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": f"walk-{user_of(role)}"},
        "roleRef": {"apiGroup": resource.group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": resource.group, "kind": "User", "name": user_of(role)}],
    }
    where, name = None if everywhere else "default", body["metadata"]["name"]
    await api.client.patch(resource, where, name, body, kind="apply", field_manager="test", force=True)


async def may(api: Api, user: str, right: str) -> bool:
    verb, resource, *name = right.split(" ")
    of, _, below = resource.partition("/")
    plural, _, group = of.partition(".")
    attributes = {"verb": verb, "group": group, "resource": plural, "namespace": "default"}
    if name:
        attributes["name"] = name[0]
    if below:
        attributes["subresource"] = below
    spec = {"user": user, "groups": ["system:authenticated"], "resourceAttributes": attributes}
    review = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "spec": spec}
    return (await api.client.create(REVIEWS, None, review))["status"]["allowed"]


async def test_each_role_may_what_the_page_says_and_nothing_else(system: System, api: Api) -> None:
    await install_roles(api.client)
    for role in ROLES:
        await bind(api, role)

    for right, marks in rows():

        async def as_said(right: str = right, marks: list[bool] = marks) -> bool:
            return [await may(api, user_of(role), right) for role in ROLES] == marks

        # Kubernetes' controller makes the roles of their parts, a moment later
        await api.until(as_said, f"the roles may or may not {right}: {marks}")


async def test_a_job_that_its_author_holds_does_not_start(system: System, api: Api) -> None:
    """By the job's annotation alone, as a researcher writes it; and it goes when the annotation does."""
    system.operator("holds").wait_ready()
    await api.apply(flavor(), cluster_queue("cq", 2), local_queue("lq", "cq"))
    held = job("held", "lq", runtime="1s")
    held["metadata"]["annotations"] = {names.HOLD: "true"}
    await api.create(held)
    await api.create(job("free", "lq", runtime="1s"))
    await api.finished("free")
    assert (await api.get(kube.JOBS, "held"))["spec"]["suspend"] is True

    async def gated() -> bool:
        found = [each for each in await api.all(kube.WORKLOADS, "default") if "held" in each["metadata"]["name"]]
        rows = [row for each in found for row in (each.get("status") or {}).get("conditions") or ()]
        return any(row["reason"] == "AdmissionGated" and names.HOLD in row["message"] for row in rows)

    await api.until(gated, "the Workload says who holds it")
    await api.client.patch(kube.JOBS, "default", "held", {"metadata": {"annotations": {names.HOLD: None}}})
    await api.finished("held")
