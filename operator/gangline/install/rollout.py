"""Waits until the Deployments of an installation run their new pods and the API server reaches them; says why they don't."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

from gangline.install.inventory import DEPLOYMENTS
from gangline.install.manifests.tree import OPERATOR_NAME, UI_NAME, WEBHOOKS_NAME
from gangline.kube.client import ApiClient, ApiError, Forbidden, NotFound
from gangline.kube.resources import PODS, REPLICA_SETS, RESOURCE_FLAVORS, Json
from gangline.objects import Stored

NAMES: Final = (WEBHOOKS_NAME, OPERATOR_NAME)
_PERIOD: Final = 1.0
#: characters of a reason, and reasons that are printed of a Deployment
_LONGEST: Final = 160
MOST_REASONS: Final = 2
_REVISION: Final = "deployment.kubernetes.io/revision"
#: reasons of a container that waits for its image
_NO_IMAGE: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})


async def wait(api: ApiClient, namespace: str, seconds: float, say: Callable[..., None]) -> str:
    """Wait until all pods are new and ready. Returns "" then, or after so many seconds what is missing. Raises ApiError.

    Errors that pass, such as of an API server that starts again, are waited out.
    """
    deadline = time.monotonic() + seconds
    reported = ""
    while True:
        try:
            missing = [await _missing(api, namespace, name) for name in NAMES]
            missing.append(await _missing(api, namespace, UI_NAME, optional=True))
            missing = list(filter(None, missing))
            missing = missing or await _unreached(api)
        except ApiError as error:
            if not error.retryable:
                raise
            missing = [str(error)]
        if not missing:
            return ""
        now = "\n".join(missing)
        if time.monotonic() > deadline:
            return now
        if now != reported:
            say(*(f"· {text}" for text in missing))
            reported = now
        await asyncio.sleep(_PERIOD)


async def _missing(api: ApiClient, namespace: str, name: str, *, optional: bool = False) -> str:
    """What this Deployment waits for; "" for nothing, and where one that is `optional` is not installed."""
    try:
        deployment = await api.get(DEPLOYMENTS, namespace, name)
    except NotFound:
        return "" if optional else f"{name} is gone"
    wanted = deployment["spec"].get("replicas", 1)
    status: Json = deployment.get("status") or {}
    seen = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    new, there = status.get("updatedReplicas", 0), status.get("replicas", 0)
    ready = status.get("availableReplicas", 0)
    if seen and new == there == ready == wanted:
        return ""
    if not seen:
        return f"{name}: not taken up yet"
    old = f", {there - new} old" if there > new else ""
    reasons = dict.fromkeys([*_refused(deployment), *await _reasons(api, namespace, deployment)])
    lines = [f"\n    {reason}" for reason in [*reasons][:MOST_REASONS]]
    return f"{name}: {min(ready, new)} of {wanted} ready{old}{''.join(lines)}"


async def _unreached(api: ApiClient) -> list[str]:
    """Why the API server gets no answer of the webhooks: a Service leads to new pods a moment after they are ready."""
    probe = {"metadata": {"name": f"gangline-install-{uuid.uuid4().hex[:8]}"}, "spec": {}}
    whole = {"apiVersion": RESOURCE_FLAVORS.api_version, "kind": RESOURCE_FLAVORS.kind, **probe}
    try:
        await api.create(RESOURCE_FLAVORS, None, whole, query={"dryRun": "All"})
    except ApiError as error:
        return [f"the API server does not reach the webhooks: {error.message}"[:_LONGEST]]
    return []


def _refused(deployment: Json) -> Iterator[str]:
    """Pods that can't even be created: Pod Security, a quota, a webhook."""
    failure = Stored(deployment).condition("ReplicaFailure")
    if failure is not None and failure["status"] == "True":
        yield failure.get("message", "pods can't be created")[:_LONGEST]


async def _reasons(api: ApiClient, namespace: str, deployment: Json) -> list[str]:
    labels = deployment["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    pods = (await api.list(PODS, namespace, label_selector=selector)).items
    try:
        newest = await _newest(api, namespace, deployment, selector)
    except Forbidden:
        newest = {_hash(pod) for pod in pods}
    return [reason for pod in pods if _hash(pod) in newest and (reason := await _reason(api, pod))]


async def _newest(api: ApiClient, namespace: str, deployment: Json, selector: str) -> set[str]:
    """The hashes of the ReplicaSets that make the Deployment's present pods: of those before, no error is printed any more."""
    revision = (deployment["metadata"].get("annotations") or {}).get(_REVISION)
    sets = (await api.list(REPLICA_SETS, namespace, label_selector=selector)).items
    return {_hash(each) for each in sets if (each["metadata"].get("annotations") or {}).get(_REVISION) == revision}


def _hash(obj: Json) -> str:
    return (obj["metadata"].get("labels") or {}).get("pod-template-hash", "")


async def _reason(api: ApiClient, pod: Json) -> str:
    """Why a pod isn't ready; "" if it is, or just needs its time."""
    name = pod["metadata"]["name"]
    scheduled = Stored(pod).condition("PodScheduled")
    if scheduled is not None and scheduled["status"] == "False":
        return f"{name}: {scheduled.get('message', 'not scheduled')}"[:_LONGEST]
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting: Json = (container.get("state") or {}).get("waiting") or {}
        if not waiting or waiting.get("reason") == "ContainerCreating":
            continue
        text = f"{name}: {waiting.get('reason')}"
        if waiting.get("reason") in _NO_IMAGE:
            return f"image {container.get('image')} can't be pulled ({waiting.get('reason')})"[:_LONGEST]
        ended: Json = (container.get("lastState") or {}).get("terminated") or {}
        if ended:
            text += f", ended with {ended.get('exitCode')}: {await _last_line(api, pod)}"
        elif waiting.get("message"):
            text += f": {waiting['message']}"
        return text[:_LONGEST]
    return ""


async def _last_line(api: ApiClient, pod: Json) -> str:
    meta = pod["metadata"]
    path = f"{PODS.path(meta['namespace'], meta['name'], 'log')}?previous=true&tailLines=1"
    try:
        text: Any = await api.raw(path, within=5.0)
    except ApiError as error:
        return f"no log ({error.reason})"
    return text.decode(errors="replace").strip() or "nothing in its log"
