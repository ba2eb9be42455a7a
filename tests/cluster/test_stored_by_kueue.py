"""Objects that Kueue stored, in both versions of its API, on a cluster where Gangline takes Kueue's place and gives it back."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.conftest import System, standing
from tests.cluster.harness import Api, Json, cluster_queue, condition, flavor, job, local_queue, priority_class

from gangline.api import names
from gangline.api.schema import crd_install
from gangline.install.kinds import install_kinds
from gangline.kube import resources as kube
from gangline.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource

pytestmark = pytest.mark.cluster

OLD, NEW = "v1beta1", "v1beta2"
KINDS = (
    kube.RESOURCE_FLAVORS,
    kube.CLUSTER_QUEUES,
    kube.LOCAL_QUEUES,
    kube.WORKLOAD_PRIORITY_CLASSES,
    kube.WORKLOADS,
)


def kueues_crds(storage: str) -> list[Json]:
    """CRDs as Kueue's are: releases up to 0.15 store v1beta1, later ones v1beta2. Kueue itself is gone: nobody converts."""
    nobody = {"service": {"namespace": "kueue-system", "name": "kueue-webhook-service", "path": "/convert"}}
    crds = [crd for crd in crd_install.crds(nobody) if crd["spec"]["group"] == names.GROUP]
    for crd in crds:
        for version in crd["spec"]["versions"]:
            version["storage"] = version["name"] == storage
    return crds


async def apply_kueues(api: Api, storage: str) -> None:
    """As Helm does."""
    for crd in kueues_crds(storage):
        name = crd["metadata"]["name"]
        await api.client.patch(
            CUSTOM_RESOURCE_DEFINITIONS, None, name, crd, kind="apply", field_manager="helm", force=True
        )

    async def served() -> bool:
        return all(condition(crd, "Established") for crd in await api.all(CUSTOM_RESOURCE_DEFINITIONS))

    await api.until(served, f"Kueue's kinds are served, stored as {storage}")


def in_version(version: str, *objects: Json) -> list[Json]:
    """Objects of Kueue's group written in that version, of which v1beta1 calls the cohort otherwise."""
    written = copy.deepcopy(list(objects))
    for obj in written:
        obj["apiVersion"] = f"{names.GROUP}/{version}"
        if version == OLD and "cohortName" in obj.get("spec", {}):
            obj["spec"]["cohort"] = obj["spec"].pop("cohortName")
    return written


def workload(name: str, queue: str) -> Json:
    """Without a job."""
    container = {"name": "main", "image": "example.com/train", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"queueName": queue, "podSets": [{"name": "main", "count": 1, "template": template}]},
    }


async def store(api: Api, version: str) -> None:
    """One object of each kind, written in the version in which it is stored."""
    end = "old" if version == OLD else "new"
    objects = (
        flavor(f"gpu-{end}", {"gangline.io/node-pool": "gpu"}),
        cluster_queue(f"cq-{end}", 8, cohort="team", flavors=[f"gpu-{end}"]),
        local_queue(f"lq-{end}", f"cq-{end}"),
        priority_class(f"class-{end}", 10),
        workload(f"alone-{end}", f"lq-{end}"),
    )
    for resource, obj in zip(KINDS, in_version(version, *objects), strict=True):
        namespace = "default" if resource.namespaced else None
        at = resource._replace(version=version)

        async def stored(at: Resource = at, namespace: str | None = namespace, obj: Json = obj) -> bool:
            return bool(await api.client.create(at, namespace, obj))

        await api.until(stored, f"{obj['metadata']['name']} is stored")


async def stored_versions(api: Api) -> dict[str, list[str]]:
    crds = await api.all(CUSTOM_RESOURCE_DEFINITIONS)
    return {
        crd["spec"]["names"]["plural"]: sorted(crd["status"]["storedVersions"])
        for crd in crds
        if crd["spec"]["group"] == names.GROUP
    }


async def what_is_read(api: Api) -> dict[tuple[str, str], set[str]]:
    """By kind and version; each kind has objects stored in both."""
    found: dict[tuple[str, str], set[str]] = {}
    for resource in KINDS:
        for version in (OLD, NEW):
            listed = await api.all(resource._replace(version=version), "default" if resource.namespaced else None)
            found[resource.plural, version] = {obj["metadata"]["name"] for obj in listed}
    return found


async def kueue_was_here(api: Api) -> None:
    """Kueue 0.15, then a later one: objects of both."""
    await apply_kueues(api, OLD)
    await store(api, OLD)
    await apply_kueues(api, NEW)
    await store(api, NEW)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[System]:
    with standing(tmp_path, before=kueue_was_here) as system:
        yield system


async def test_objects_of_both_versions_are_read_and_admitted_and_kueue_can_come_back(system: System, api: Api) -> None:
    both = {resource.plural: [OLD, NEW] for resource in KINDS}
    assert (await stored_versions(api)).items() >= both.items(), "Gangline's CRDs leave what is said of stored objects"
    before = await what_is_read(api)
    assert all({name.rpartition("-")[2] for name in listed} == {"old", "new"} for listed in before.values())
    for name, version, field in (("cq-new", OLD, "cohort"), ("cq-old", NEW, "cohortName")):
        queue = await api.get(kube.CLUSTER_QUEUES._replace(version=version), name)
        assert queue["spec"][field] == "team"

    operator = system.operator().wait_ready()
    for end in ("old", "new"):

        async def admitted(end: str = end) -> bool:
            return condition(await api.get(kube.WORKLOADS, f"alone-{end}"), "Admitted")

        await api.until(admitted, f"the workload stored in the {end} version is admitted")
        await api.create(job(f"train-{end}", f"lq-{end}", priority=f"class-{end}"))
    await api.finished("train-old", "train-new")
    operator.kill()
    leave(system)
    await apply_kueues(api, OLD)
    system.webhooks.start()  # converts in Kueue's stead
    assert (await stored_versions(api)).items() >= both.items()
    after = await what_is_read(api)
    assert all(after[key] >= before[key] for key in before)
    for version in (OLD, NEW):
        kept = await api.get(kube.WORKLOADS._replace(version=version), "alone-old")
        assert condition(kept, "Admitted"), "Kueue goes on from what Gangline decided"
    await install_kinds(api.client)


def leave(system: System) -> None:
    """As docs/from-kueue.md says of the way back."""
    system.webhooks.stop()
    command = [sys.executable, "-m", "gangline.console.cli", "admin", "webhooks", "--unregister"]
    subprocess.run([*command, "--kubeconfig", system.webhooks.kubeconfig, "--mode", "url"], check=True, timeout=60)
