"""The Deployments of operator and webhooks: replicas, nodes, images, and what their namespace enforces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import gangline
from gangline.api import names
from gangline.console.doctor.cluster import ClusterReads, Finding, failure, ok, some, unknown, warning
from gangline.console.doctor.examination import Findings
from gangline.install.inventory import DEPLOYMENTS
from gangline.kube import resources as kube
from gangline.kube.resources import Json

_OUTSIDE: Final = f"no Deployment in {names.SYSTEM_NAMESPACE}: operator and webhooks run outside of it, or not at all"
_PODS: Final = f"kubectl describe pods -n {names.SYSTEM_NAMESPACE}"
#: states in which a container waits until somebody repairs something
_BROKEN: Final = frozenset(
    {"CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "InvalidImageName"}
)
ENFORCE: Final = "pod-security.kubernetes.io/enforce"


async def deployments(cluster: ClusterReads) -> Findings:
    found = await cluster.list(DEPLOYMENTS, names.SYSTEM_NAMESPACE)
    pods = await cluster.list(kube.PODS, names.SYSTEM_NAMESPACE)
    if not found:
        yield ok(_OUTSIDE)
    for deployment in found:
        for finding in _replicas(deployment):
            yield finding
        for finding in _pods(deployment, pods):
            yield finding


def _replicas(deployment: Json) -> Iterator[Finding]:
    name, status = deployment["metadata"]["name"], deployment.get("status") or {}
    wanted, ready = deployment["spec"].get("replicas", 1), status.get("readyReplicas") or 0
    if wanted == 0:
        yield warning(
            f"{name} is scaled to 0", f"kubectl scale -n {names.SYSTEM_NAMESPACE} deployment/{name} --replicas=2"
        )
    elif ready == 0:
        yield failure(f"{name}: none of {wanted} replicas is ready", _PODS)
    elif ready < wanted:
        yield warning(f"{name}: {ready} of {wanted} replicas are ready", _PODS)
    elif wanted == 1:
        yield warning(f"{name} has one replica: it is away while its node is", "run two replicas")
    else:
        yield ok(f"{name}: {ready} of {wanted} replicas are ready")


def _pods(deployment: Json, pods: list[Json]) -> Iterator[Finding]:
    name = deployment["metadata"]["name"]
    wanted = ((deployment["spec"].get("selector") or {}).get("matchLabels") or {}).items()
    mine = [pod for pod in pods if wanted and wanted <= (pod["metadata"].get("labels") or {}).items()]
    running = [pod for pod in mine if (pod.get("status") or {}).get("phase") == "Running"]
    nodes = {pod["spec"].get("nodeName") for pod in running}
    if len(running) > 1 and len(nodes) == 1:
        yield warning(
            f"all pods of {name} run on node {nodes.pop()}", "spread them: the loss of that node stops them all"
        )
    for pod in mine:
        for state in (pod.get("status") or {}).get("containerStatuses") or ():
            waiting = (state.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in _BROKEN:
                said = f"{waiting['reason']}: {waiting.get('message') or ''}"
                yield failure(f"pod {pod['metadata']['name']}: {said}", _PODS)


async def images(cluster: ClusterReads) -> Findings:
    """Versions of the images, and of this command."""
    found = await cluster.list(DEPLOYMENTS, names.SYSTEM_NAMESPACE)
    tags = {
        container["image"]: _tag(container["image"])
        for deployment in found
        for container in deployment["spec"]["template"]["spec"]["containers"]
    }
    if not tags:
        yield ok(_OUTSIDE)
        return
    if nameless := [image for image, tag in tags.items() if not tag]:
        yield unknown(f"{some(nameless)} has no tag to compare with")
    versions = {tag for tag in tags.values() if tag}
    if len(versions) > 1:
        yield warning(f"different versions run: {some(versions)}", "update them together")
    if other := [image for image, tag in tags.items() if tag and tag.lstrip("v") != gangline.__version__]:
        yield warning(
            f"this command is {gangline.__version__}, but {some(other)}", "use the command of the same version"
        )
    elif versions:
        yield ok(f"{gangline.__version__}, as this command")


def _tag(image: str) -> str:
    """The tag of an image, such as `1.2` of `registry:5000/gangline:1.2`; "" without a tag, or with a digest alone."""
    name = image.partition("@")[0].rpartition("/")[2]
    return name.partition(":")[2]


async def pod_security(cluster: ClusterReads) -> Findings:
    namespace = await cluster.get(kube.NAMESPACES, None, names.SYSTEM_NAMESPACE)
    if namespace is None:
        yield ok(f"there is no namespace {names.SYSTEM_NAMESPACE}")
        return
    level = (namespace["metadata"].get("labels") or {}).get(ENFORCE)
    if level == "restricted":
        yield ok(f"{names.SYSTEM_NAMESPACE} enforces restricted")
    elif not await cluster.list(DEPLOYMENTS, names.SYSTEM_NAMESPACE):
        yield ok(f"{names.SYSTEM_NAMESPACE} enforces {level or 'nothing'}, and no Deployment runs in it")
    else:
        advice = f"kubectl label namespace {names.SYSTEM_NAMESPACE} {ENFORCE}=restricted"
        yield warning(f"{names.SYSTEM_NAMESPACE} enforces {level or 'nothing'}; Gangline's pods fit restricted", advice)
