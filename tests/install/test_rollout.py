"""What `gangline admin install` says while it waits: of the present pods alone, in short lines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gangline.install import rollout
from gangline.install.inventory import DEPLOYMENTS
from gangline.install.manifests.tree import UI_NAME
from gangline.kube.errors import Forbidden, NotFound
from gangline.kube.resources import PODS, REPLICA_SETS, Resource

Json = dict[str, Any]
IMAGE = "registry.example.com/gangline/gangline:0.0.0-missing"


def of_revision(name: str, revision: str) -> Json:
    labels = {"app": "x", "pod-template-hash": name}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": {"deployment.kubernetes.io/revision": revision}}
    }


def pod(name: str, made_by: str, reason: str, message: str, image: str = IMAGE) -> Json:
    status = {"name": "operator", "image": image, "state": {"waiting": {"reason": reason, "message": message}}}
    meta = {"name": name, "namespace": "gangline-system", "labels": {"app": "x", "pod-template-hash": made_by}}
    return {"metadata": meta, "status": {"containerStatuses": [status]}}


class Api:
    """One state of both Deployments: two present pods without an image, and an old one that crashes."""

    sees_sets = True

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        if name == UI_NAME:
            raise NotFound(404, "NotFound", f'deployments.apps "{name}" not found')
        assert resource == DEPLOYMENTS
        meta = {"name": name, "generation": 2, "annotations": {"deployment.kubernetes.io/revision": "2"}}
        status = {"observedGeneration": 2, "updatedReplicas": 2, "replicas": 3, "availableReplicas": 0}
        return {"metadata": meta, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}}, "status": status}

    async def list(self, resource: Resource, namespace: str, *, label_selector: str) -> Any:
        if resource == REPLICA_SETS:
            if not self.sees_sets:
                raise Forbidden(403, "Forbidden", "no")
            return SimpleNamespace(items=[of_revision("old", "1"), of_revision("new", "2")])
        assert resource == PODS
        long = "failed to resolve reference: " + "x" * 2000
        found = [pod(f"new-{i}", "new", "ImagePullBackOff", long) for i in range(2)]
        return SimpleNamespace(items=[pod("old-0", "old", "RunContainerError", "the error of an old pod"), *found])


async def waited(api: Any) -> tuple[list[str], str]:
    said: list[str] = []
    missing = await rollout.wait(api, "gangline-system", -1.0, lambda *lines: said.extend(lines))
    return said, missing


async def test_a_missing_image_is_said_in_short_lines_and_old_pods_say_nothing() -> None:
    _, missing = await waited(Api())
    assert missing.splitlines() == [
        "gangline-webhooks: 0 of 2 ready, 1 old",
        f"    image {IMAGE} can't be pulled (ImagePullBackOff)",
        "gangline-operator: 0 of 2 ready, 1 old",
        f"    image {IMAGE} can't be pulled (ImagePullBackOff)",
    ]


async def test_without_the_right_to_list_replica_sets_all_pods_are_looked_at() -> None:
    api = Api()
    api.sees_sets = False
    _, missing = await waited(api)
    assert "the error of an old pod" in missing and all(len(line) < 200 for line in missing.splitlines())
