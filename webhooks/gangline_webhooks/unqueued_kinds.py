"""A warning for the author of an object that names a queue and is of a kind that is not queued.

It is a ValidatingAdmissionPolicy that warns and never refuses: API servers decide it themselves, so no call is made and the
warning comes while the webhooks are down, too. Kinds that have webhooks get their warning there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from gangline.api import jobkinds, names
from gangline.api.jobkinds.others import others
from gangline.api.read.configuration.managed_jobs import FRAMEWORKS, ManagedJobs
from gangline.kube import ownership
from gangline.kube.client import ApiClient
from gangline.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from gangline.kube.resources import VALIDATING_POLICIES, VALIDATING_POLICY_BINDINGS, Json, Resource
from gangline_webhooks.comparison import contains

log = logging.getLogger(__name__)

NAME: Final = f"unqueued-kinds.{names.OWN_GROUP}"
_KIND: Final = "request.kind.group + '/' + request.kind.kind"
#: a new object, a changed one, or one that names a queue only now
_NEW: Final = (
    f"oldObject == null || object.?spec != oldObject.?spec || !('{names.QUEUE_NAME}' in "
    "oldObject.metadata.?labels.orValue({}))"
)
_ALONE: Final = "!object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false))"
_HAS_PODS: Final = "object.?spec.?template.?spec.?containers.hasValue()"


def manifests(managed: ManagedJobs) -> dict[Resource, Json]:
    """The policy and its binding, as the list of managed kinds wants them."""
    known = {each.identity for each in jobkinds.known()} | {(each.group, each.kind) for each in jobkinds.external()}
    frameworks = {identity: name for name, identity in FRAMEWORKS.items() if identity not in known}
    unlisted = {identity: name for identity, name in frameworks.items() if identity in managed.unlisted}
    quiet = known | (frameworks.keys() - unlisted.keys()) | {(names.GROUP, "Workload")}
    never = {(each.group, each.kind) for each in others(jobkinds.known())} - quiet
    listed = [*never, *unlisted]
    since = "'Gangline does not queue this kind'"
    for (group, kind), name in sorted(unlisted.items()):
        since = f"({_KIND} == '{group}/{kind}' ? '\"{name}\" is not listed in integrations.frameworks' : {since})"
    said = "' names a queue and is not queued: its pods start without quota, since '"
    policy = {
        "failurePolicy": "Ignore",
        "matchConstraints": {
            "matchPolicy": "Exact",
            "objectSelector": {"matchExpressions": [{"key": names.QUEUE_NAME, "operator": "Exists"}]},
            "resourceRules": [
                {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["*"]}
            ],
        },
        "matchConditions": [
            {"name": "not-queued", "expression": f"!({_KIND} in {_cel(quiet)})"},
            {"name": "makes-pods", "expression": f"{_KIND} in {_cel(listed)} || {_HAS_PODS}"},
            {"name": "stands-alone", "expression": _ALONE},
            {"name": "is-news", "expression": _NEW},
        ],
        "validations": [
            {
                "expression": "false",
                "message": "it names a queue and is not queued: its pods start without quota",
                "messageExpression": f"'this ' + request.kind.kind + {said} + {since}",
            }
        ],
    }
    left_out = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(names.EXCLUDED_NAMESPACES)}
    binding = {
        "policyName": NAME,
        "validationActions": ["Warn"],
        "matchResources": {"namespaceSelector": {"matchExpressions": [left_out]}},
    }
    meta = {"name": NAME, "labels": {"app.kubernetes.io/part-of": "gangline"}}
    specs = {VALIDATING_POLICIES: policy, VALIDATING_POLICY_BINDINGS: binding}
    return {
        resource: {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": spec}
        for resource, spec in specs.items()
    }


def _cel(identities: Iterable[tuple[str, str]]) -> str:
    return "[" + ", ".join(f"'{group}/{kind}'" for group, kind in sorted(identities)) + "]"


async def ensure(client: ApiClient, managed: ManagedJobs) -> None:
    """Create the policy, or correct it. Nothing depends on it: where it is not allowed, there is no warning. Raises ApiError."""
    for resource, wanted in manifests(managed).items():
        try:
            await _ensure(client, resource, wanted)
        except Forbidden as error:
            log.info("no warning about kinds that are not queued: %s", error.message)
            return


async def _ensure(client: ApiClient, resource: Resource, wanted: Json) -> None:
    try:
        live = await client.get(resource, None, NAME)
    except NotFound:
        owned = await ownership.owned_by(client, ownership.WEBHOOKS)
        try:
            await client.create(resource, None, {**wanted, "metadata": {**wanted["metadata"], **owned}})
        except AlreadyExists:
            return
        log.info("created %s %s", resource.kind, NAME)
        return
    if contains(live["spec"], wanted["spec"]):
        return
    try:
        await client.replace(resource, None, NAME, {**live, "spec": wanted["spec"]})
    except Conflict:  # another replica was faster
        return
    log.info("updated %s %s", resource.kind, NAME)


async def remove(client: ApiClient) -> None:
    """Delete the policy, for uninstalling. Raises ApiError."""
    for resource in (VALIDATING_POLICY_BINDINGS, VALIDATING_POLICIES):
        try:
            await client.delete(resource, None, NAME)
        except (NotFound, Forbidden):
            continue
