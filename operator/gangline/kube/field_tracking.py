"""Spares the API server from tracking the owner of each field of a Workload.

With every write of an object the server computes which of its fields each writer owns (`metadata.managedFields`): a third of
the cost of a Workload, and half of the object. An object without that record gets none until it is written by server-side
apply. So a MutatingAdmissionPolicy removes it from new Workloads: controllers write them, and none of them reads it. A Workload
that is created by server-side apply keeps it, since its author relies on it.

API servers have such policies from 1.36 on (`gangline.kube.versions`); on others nothing changes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from gangline.kube.client import ApiClient
from gangline.kube.errors import AlreadyExists, ApiError, NotFound
from gangline.kube.ownership import owned_by
from gangline.kube.resources import MUTATING_POLICIES, MUTATING_POLICY_BINDINGS, WORKLOADS, Json, Resource

log = logging.getLogger(__name__)


NAME: Final = "untracked-workloads.gangline.io"
#: rights that a process has itself can always be checked
SELF_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False, kind="SelfSubjectAccessReview"
)
#: An API server looks every five seconds for the schemas of kinds that policies are about, and answers 503 to a create of a
#: kind that it does not know yet, whatever the failure policy is. So newly installed kinds get this many seconds.
SETTLED: Final = 15.0
#: seconds until an API server that could not answer is asked again
RETRY: Final = 5.0


def manifests() -> dict[Resource, Json]:
    """The policy, and its binding."""
    rule = {
        "apiGroups": [WORKLOADS.group],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": [WORKLOADS.plural],
    }
    recorded = "has(object.metadata.managedFields) && object.metadata.managedFields.all(f, f.operation == 'Update')"
    take_off = "[JSONPatch{op: 'remove', path: '/metadata/managedFields'}]"
    policy = {
        "matchConstraints": {"matchPolicy": "Exact", "resourceRules": [rule]},
        "matchConditions": [{"name": "nobody-applies-it", "expression": recorded}],
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": take_off}}],
    }
    specs = {MUTATING_POLICIES: policy, MUTATING_POLICY_BINDINGS: {"policyName": NAME}}
    meta = {"name": NAME, "labels": {"app.kubernetes.io/part-of": "gangline"}}
    return {
        resource: {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": spec}
        for resource, spec in specs.items()
    }


async def end(client: ApiClient, role: str, *, after: float = SETTLED) -> None:
    """Create the policy after this many seconds, if that is possible and allowed and it does not exist. An unreachable API
    server is asked again; all other errors are logged: nothing depends on the policy. `role`: the ClusterRole that owns it.
    """
    await asyncio.sleep(after)
    while True:
        try:
            await _make(client, role)
            return
        except ApiError as error:
            if not error.retryable:
                log.info("who owns the fields of Workloads stays recorded: %s", error)
                return
        await asyncio.sleep(RETRY)


async def _make(client: ApiClient, role: str) -> None:
    for resource, body in manifests().items():
        try:
            await client.get(resource, None, NAME)
        except NotFound:
            if await _may_create(client, resource):  # usually only the webhooks may, and do
                owned = {**body, "metadata": {**body["metadata"], **await owned_by(client, role)}}
                await _create(client, resource, owned)


async def _create(client: ApiClient, resource: Resource, body: Json) -> None:
    try:
        await client.create(resource, None, body)
    except AlreadyExists:
        return


async def _may_create(client: ApiClient, resource: Resource) -> bool:
    wanted = {"group": resource.group, "resource": resource.plural, "verb": "create"}
    review = {
        "apiVersion": SELF_REVIEWS.api_version,
        "kind": SELF_REVIEWS.kind,
        "spec": {"resourceAttributes": wanted},
    }
    return (await client.create(SELF_REVIEWS, None, review))["status"]["allowed"]
