"""Sample GPUJobs, and a namespace that carries out what `sync` wants."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from tests.jobs.support import Json
from tests.merging import merge_patch
from tests.objects import JobObject, Stored

from gangline.api import names
from gangline.jobs.base import Children, Create, Delete, JobWrite, Patch, PodSetInfo
from gangline.jobs.gpujob import GPUJobKind
from gangline.kube.resources import Resource
from gangline.objects import view

KIND = GPUJobKind()
CREATED = "2026-01-01T00:00:00Z"


def pod_template(*, command: list[str] | None = None, env: list[Json] | None = None, **spec: Any) -> Json:
    container: Json = {"name": "main", "image": "train:1"}
    if command:
        container["command"] = command
    if env:
        container["env"] = env
    return {"spec": {"containers": [container], **spec}}


def role(name: str, replicas: int, gpus: int = 0, **more: Any) -> Json:
    return {
        "name": name,
        "replicas": replicas,
        "gpus": gpus,
        "template": pod_template(command=["python", "train.py"]),
        **more,
    }


def gpu_job(*roles: Json, status: Json | None = None, name: str = "llama", **spec: Any) -> JobObject:
    """The given roles, or else the short form with two workers of eight GPUs."""
    form: Json = {"roles": list(roles)} if roles else {"workers": 2, "gpusPerWorker": 8, "template": pod_template()}
    return JobObject(
        {
            "apiVersion": "gangline.io/v1alpha1",
            "kind": "GPUJob",
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": "gpujob-uid",
                "generation": 1,
                "creationTimestamp": CREATED,
            },
            "spec": {"suspend": True, "gpuResource": "nvidia.com/gpu", **form, **spec},
            **({"status": status} if status else {}),
        }
    )


def admitted(job: JobObject, **counts: int) -> list[PodSetInfo]:
    return [
        PodSetInfo(item["name"], counts.get(item["name"], item["count"]), node_selector={"pool": "h100"})
        for item in KIND.pod_sets(job)
    ]


def env_of(template: Json) -> dict[str, str]:
    """The plain variables of the first container."""
    return {item["name"]: item.get("value", "") for item in template["spec"]["containers"][0].get("env", [])}


class FakeNamespace:
    """The job and its children, changed by the writes of `sync` as an API server would, with a clock that ticks."""

    def __init__(self, job: JobObject) -> None:
        self.job = copy.deepcopy(job)
        self.jobs: dict[str, JobObject] = {}
        self.services: dict[str, Stored] = {}
        self.templates: dict[str, Stored] = {}
        self.created = 0
        self.ticks = 0

    @property
    def children(self) -> Children:
        return Children(*(list(store.values()) for store in (self.jobs, self.services, self.templates)))

    def now(self) -> str:
        self.ticks += 1
        return f"2026-01-01T{1 + self.ticks // 60:02}:{self.ticks % 60:02}:00Z"

    def sync(self, infos: Sequence[PodSetInfo] | None) -> list[JobWrite]:
        before = copy.deepcopy((self.job, self.jobs, self.services, self.templates))
        writes = KIND.sync(self.job, infos, self.children)
        assert (self.job, self.jobs, self.services, self.templates) == before, "sync must not change what it is given"
        for write in writes:
            self.carry_out(write)
        return writes

    def settle(self, infos: Sequence[PodSetInfo] | None) -> int:
        """Sync until nothing is left to do; returns how many rounds wrote something."""
        rounds = 0
        while self.sync(infos):
            self.collect()
            rounds += 1
            assert rounds < 12, "sync does not converge"
        return rounds

    def carry_out(self, write: JobWrite) -> None:
        match write:
            case Patch(body, subresource):
                part = "status" if subresource else "spec"
                assert set(body) == {part}
                changed = merge_patch(self.job, body)
                assert changed != self.job, "a write that changes nothing"
                for condition in changed.get("status", {}).get("conditions", []):
                    assert {"type", "status", "reason", "message", "lastTransitionTime"} <= set(condition)
                self.job = changed
            case Create(resource, body):
                store = self.store(resource)
                name = body["metadata"]["name"]
                assert name not in store, "AlreadyExists"
                self.created += 1
                stamps = {"uid": f"uid-{self.created}", "creationTimestamp": self.now()}
                made = copy.deepcopy(body) | {"metadata": {**body["metadata"], **stamps}}
                store[name] = view(resource, made)
            case Delete(resource, _, name, uid):
                child = self.store(resource)[name]
                assert child["metadata"]["uid"] == uid
                assert "deletionTimestamp" not in child["metadata"], "deleted twice"
                child["metadata"]["deletionTimestamp"] = self.now()

    def store(self, resource: Resource) -> dict[str, Any]:
        return {"jobs": self.jobs, "services": self.services, "resourceclaimtemplates": self.templates}[resource.plural]

    def collect(self) -> None:
        """The garbage collector: what is being deleted goes."""
        for store in (self.jobs, self.templates):
            for name in [name for name, child in store.items() if "deletionTimestamp" in child["metadata"]]:
                del store[name]

    def report(self, child: str, **status: Any) -> None:
        self.jobs[child]["status"] = {**self.jobs[child].get("status", {}), **status}

    def finish(self, child: str, kind: str, reason: str = "", message: str = "") -> None:
        condition = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": self.now(),
        }
        self.report(child, conditions=[condition], active=0, ready=0)

    def condition(self, kind: str) -> Json | None:
        rows = self.job.get("status", {}).get("conditions", [])
        return next((row for row in rows if row["type"] == kind and row["status"] == "True"), None)

    def admission(self, child: str) -> str:
        return self.jobs[child]["metadata"]["annotations"][names.ADMISSION_DIGEST]
