"""LeaderWorkerSets for tests: a CRD with the fields that matter, and a small controller that keeps to what the real one does.

It makes a StatefulSet of leaders, and for each leader pod a StatefulSet of its workers. It recreates a group whose pod was
deleted, and reports replicas, ready and updated replicas. The labels that the webhook of the real one gives to new pods come a
moment later here.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import json
import logging
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.harness import Api

from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, NotFound

Json = dict[str, Any]
log = logging.getLogger(__name__)

PREFIX = "leaderworkerset.sigs.k8s.io"
NAME, GROUP, INDEX = f"{PREFIX}/name", f"{PREFIX}/group-index", f"{PREFIX}/worker-index"
REVISION, SIZE, LEADER = f"{PREFIX}/template-revision-hash", f"{PREFIX}/size", f"{PREFIX}/leader-name"
PERIOD = 0.15
_POD_TEMPLATE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_WHOLE = {"type": "integer", "format": "int32"}


def crd() -> Json:
    template = {
        "type": "object",
        "required": ["workerTemplate"],
        "properties": {
            "size": {**_WHOLE, "default": 1},
            "restartPolicy": {"type": "string", "default": "RecreateGroupOnPodRestart"},
            "leaderTemplate": _POD_TEMPLATE,
            "workerTemplate": _POD_TEMPLATE,
        },
    }
    spec = {
        "type": "object",
        "required": ["leaderWorkerTemplate"],
        "properties": {
            "replicas": {**_WHOLE, "default": 1},
            "startupPolicy": {"type": "string", "default": "LeaderCreated"},
            "rolloutStrategy": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "leaderWorkerTemplate": template,
        },
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
    }
    resource = kube.LEADER_WORKER_SETS
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "kind": resource.kind,
                "shortNames": ["lws"],
            },
            "versions": [version],
        },
    }


def is_ready(pod: Json) -> bool:
    return any(row["type"] == "Ready" and row["status"] == "True" for row in pod["status"].get("conditions") or ())


def _owner(obj: Json, api_version: str, kind: str) -> Json:
    meta = obj["metadata"]
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _controller_uid(obj: Json) -> str:
    return next((row["uid"] for row in obj["metadata"].get("ownerReferences") or () if row.get("controller")), "")


def revision_of(lws: Json) -> str:
    template = {key: value for key, value in lws["spec"]["leaderWorkerTemplate"].items() if key != "size"}
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:8]


def _template(lws: Json, *, leads: bool, labels: Json, notes: Json) -> Json:
    both = lws["spec"]["leaderWorkerTemplate"]
    body = copy.deepcopy((both.get("leaderTemplate") if leads else None) or both["workerTemplate"])
    meta = body.setdefault("metadata", {})
    meta["labels"] = {**(meta.get("labels") or {}), NAME: lws["metadata"]["name"], **labels}
    meta["annotations"] = {**(meta.get("annotations") or {}), SIZE: str(both.get("size", 1)), **notes}
    return body


def leaders(lws: Json) -> Json:
    """The StatefulSet of its leaders."""
    labels = {NAME: lws["metadata"]["name"], INDEX: "0"}
    revision = {REVISION: revision_of(lws)}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": lws["metadata"]["name"],
            "namespace": lws["metadata"]["namespace"],
            "labels": {**labels, **revision},
            "ownerReferences": [_owner(lws, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")],
        },
        "spec": {
            "replicas": lws["spec"].get("replicas", 1),
            "podManagementPolicy": "Parallel",
            "serviceName": lws["metadata"]["name"],
            "selector": {"matchLabels": labels},
            "template": _template(lws, leads=True, labels={INDEX: "0", **revision}, notes={}),
        },
    }


def workers(lws: Json, leader: Json) -> Json:
    """The StatefulSet of the workers of a leader pod."""
    name, group = leader["metadata"]["name"], leader["metadata"]["labels"][GROUP]
    labels = {NAME: lws["metadata"]["name"], GROUP: group}
    revision = {REVISION: leader["metadata"]["labels"].get(REVISION, "")}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": name,
            "namespace": lws["metadata"]["namespace"],
            "labels": {**labels, **revision},
            "ownerReferences": [_owner(leader, "v1", "Pod")],
        },
        "spec": {
            "replicas": lws["spec"]["leaderWorkerTemplate"].get("size", 1) - 1,
            "podManagementPolicy": "Parallel",
            "serviceName": lws["metadata"]["name"],
            "ordinals": {"start": 1},
            "selector": {"matchLabels": {**labels, f"{PREFIX}/leader": name}},
            "template": _template(
                lws, leads=False, labels={**labels, **revision, f"{PREFIX}/leader": name}, notes={LEADER: name}
            ),
        },
    }


@dataclass
class Controller:
    """The controller, as a task of the test."""

    api: Api
    _task: asyncio.Task[None] | None = None
    _seen: dict[str, str] = field(default_factory=dict)

    def start(self) -> Controller:
        self._task = asyncio.create_task(self._run())
        return self

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            try:
                for lws in await self.api.all(kube.LEADER_WORKER_SETS, "default"):
                    await self._reconcile(lws)
            except ApiError as error:
                log.info("again: %s", error)
            await asyncio.sleep(PERIOD)

    async def _reconcile(self, lws: Json) -> None:
        if "deletionTimestamp" in lws["metadata"]:
            return
        name = lws["metadata"]["name"]
        pods = await self.api.all(kube.PODS, "default", f"{NAME}={name}")
        sets = {each["metadata"]["name"]: each for each in await self.api.all(kube.STATEFUL_SETS, "default")}
        await self._lead(lws, sets.get(name))
        for pod in pods:
            await self._label(pod, name)
        for leader in (pod for pod in pods if LEADER not in (pod["metadata"].get("annotations") or {})):
            await self._follow(lws, leader, pods, sets)
        await self._report(lws, pods)

    async def _lead(self, lws: Json, present: Json | None) -> None:
        wanted = leaders(lws)
        if present is None:
            await self.api.client.create(kube.STATEFUL_SETS, "default", wanted)
            return
        revision = json.dumps([wanted["spec"]["replicas"], wanted["spec"]["template"]], sort_keys=True)
        uid = present["metadata"]["uid"]
        if self._seen.get(uid) != revision:
            body = {"spec": {"replicas": wanted["spec"]["replicas"], "template": wanted["spec"]["template"]}}
            await self.api.client.patch(kube.STATEFUL_SETS, "default", present["metadata"]["name"], body)
            self._seen[uid] = revision

    async def _label(self, pod: Json, name: str) -> None:
        labels, own = pod["metadata"]["labels"], pod["metadata"]["name"]
        number = own.rpartition("-")[2]
        added: Json = {}
        if LEADER in (pod["metadata"].get("annotations") or {}):
            added = {} if labels.get(INDEX) else {INDEX: number}
        elif GROUP not in labels:
            added = {GROUP: number}
        if added:
            labels |= added
            with contextlib.suppress(NotFound):
                await self.api.client.patch(kube.PODS, "default", own, {"metadata": {"labels": added}})

    async def _follow(self, lws: Json, leader: Json, pods: list[Json], sets: dict[str, Json]) -> None:
        """The workers of a leader; the whole group is recreated once one of its pods was deleted."""
        meta = leader["metadata"]
        if "deletionTimestamp" in meta:
            return
        made = sets.get(meta["name"])
        mine = made is not None and _controller_uid(made) == meta["uid"]
        group = [pod for pod in pods if made is not None and _controller_uid(pod) == made["metadata"]["uid"]]
        policy = lws["spec"]["leaderWorkerTemplate"].get("restartPolicy")
        if mine and policy == "RecreateGroupOnPodRestart" and any("deletionTimestamp" in p["metadata"] for p in group):
            with contextlib.suppress(NotFound):
                await self.api.client.delete(
                    kube.PODS, "default", meta["name"], uid=meta["uid"], propagation="Foreground"
                )
            return
        late = lws["spec"].get("startupPolicy") == "LeaderReady" and not is_ready(leader)
        if made is None and not late and lws["spec"]["leaderWorkerTemplate"].get("size", 1) > 1:
            await self.api.client.create(kube.STATEFUL_SETS, "default", workers(lws, leader))

    async def _report(self, lws: Json, pods: list[Json]) -> None:
        size, revision = lws["spec"]["leaderWorkerTemplate"].get("size", 1), revision_of(lws)
        groups: dict[str, list[Json]] = {}
        for pod in pods:
            groups.setdefault(pod["metadata"]["labels"].get(GROUP, ""), []).append(pod)
        whole = [group for group in groups.values() if sum(map(is_ready, group)) == size]
        status = {
            "replicas": sum(LEADER not in (pod["metadata"].get("annotations") or {}) for pod in pods),
            "readyReplicas": len(whole),
            "updatedReplicas": sum(
                all(pod["metadata"]["labels"].get(REVISION) == revision for pod in group) for group in whole
            ),
        }
        if status != lws.get("status"):
            await self.api.client.patch(
                kube.LEADER_WORKER_SETS,
                "default",
                lws["metadata"]["name"],
                {"status": status},
                subresource="status",
            )
