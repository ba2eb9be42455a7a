"""Checks that the webhooks answer: the API server is asked to create harmless objects without storing them (dry run).

An object that has to be completed comes back completed, one that has to be refused is refused, and by the right webhook: that
covers registration, network, certificates and the processes themselves. Webhooks of others that are in the way show here too.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gangline.api import names
from gangline.console.doctor.cluster import PATIENCE, ClusterReads
from gangline.console.doctor.examination import Findings
from gangline.console.doctor.finding import Finding, failure, ok, unknown
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Forbidden
from gangline.kube.resources import Json, Resource

_DRY: Final[Mapping[str, str]] = MappingProxyType({"dryRun": "All"})
_ADVICE: Final = "start `gangline admin webhooks`; if they run, make sure that API servers reach them"


async def answers(cluster: ClusterReads) -> Findings:
    name = f"gangline-doctor-{uuid.uuid4().hex[:8]}"
    namespace = cluster.api.login.namespace
    if namespace in names.EXCLUDED_NAMESPACES:
        namespace = "default"
    yield await _completed(cluster, name)
    yield await _refused(cluster, name, namespace)


async def _completed(cluster: ClusterReads, name: str) -> Finding:
    """Check that a ResourceFlavor gets a finalizer."""
    resource = kube.RESOURCE_FLAVORS
    try:
        made = await _create(cluster, resource, None, {"metadata": {"name": name}, "spec": {}})
    except ApiError as error:
        return _failed("ResourceFlavor", error)
    if names.IN_USE_FINALIZER in (made["metadata"].get("finalizers") or ()):
        return ok("a ResourceFlavor was completed")
    return failure("a ResourceFlavor was not completed: no webhook saw it", _ADVICE)


async def _refused(cluster: ClusterReads, name: str, namespace: str) -> Finding:
    """Check that a Job that names a queue is refused if it may run with no pods, and accepted otherwise.

    The API server asks all webhooks at the same time, and answers with the first refusal: the Job that can never run may be
    refused by ours before another webhook, which nobody answers for, fails. A Job that is right shows that one.
    """
    try:
        await _create(cluster, kube.JOBS, namespace, _job(name, {names.MIN_PARALLELISM: "0"}))
        return failure("a Job that can never run was accepted: no webhook saw it", _ADVICE)
    except ApiError as error:
        if "queued-jobs.validating.gangline.io" not in error.message or "denied the request" not in error.message:
            return _failed("Job that names a queue", error)
    try:
        await _create(cluster, kube.JOBS, namespace, _job(name, {}))
    except ApiError as error:
        if _is_unanswered(error):
            return _failed("Job that names a queue", error)
    return ok(f"a Job in a queue was checked (namespace {namespace})")


def _job(name: str, annotations: Mapping[str, str]) -> Json:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "gangline.io/doctor"}]}}
    meta = {"name": name, "labels": {names.QUEUE_NAME: name}, "annotations": dict(annotations)}
    return {"metadata": meta, "spec": {"parallelism": 1, "suspend": True, "template": template}}


async def _create(cluster: ClusterReads, resource: Resource, namespace: str | None, body: Json) -> Json:
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    return await cluster.api.create(resource, namespace, whole, query=_DRY, within=PATIENCE)


def _failed(what: str, error: ApiError) -> Finding:
    if isinstance(error, Forbidden) and "is forbidden: User " in error.message:
        return unknown(f"you may not create a {what}, so no webhook was tried", "ask an administrator")
    if _is_unanswered(error):
        return failure(
            f"a {what} cannot be created: {error.message}", "start that webhook, or remove its configuration"
        )
    return unknown(f"a {what} was refused for another reason: {error.message}")


def _is_unanswered(error: ApiError) -> bool:
    """Whether nobody answers for a webhook that the API server has to ask."""
    return "failed calling webhook" in error.message or "failed to call webhook" in error.message
