"""The child Jobs of a JobSet and their headless Service: their names and contents. Pure."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gangline.kube.resources import Json

PREFIX: Final = "jobset.sigs.k8s.io"
JOB_SET_NAME: Final = f"{PREFIX}/jobset-name"
REPLICATED_JOB: Final = f"{PREFIX}/replicatedjob-name"
JOB_INDEX: Final = f"{PREFIX}/job-index"
JOB_KEY: Final = f"{PREFIX}/job-key"
RESTART: Final = f"{PREFIX}/restart-attempt"
EXCLUSIVE: Final = f"alpha.{PREFIX}/exclusive-topology"
#: most Jobs of one replicated job
MOST_JOBS = 10_000


@dataclass(frozen=True, slots=True)
class Child:
    """One Job that a JobSet should have."""

    job_set: Json
    group: Json  # the replicated job
    index: int
    global_index: int

    @property
    def namespace(self) -> str:
        return self.job_set["metadata"]["namespace"]

    @property
    def name(self) -> str:
        return f"{self.job_set['metadata']['name']}-{self.group['name']}-{self.index}"

    @property
    def key(self) -> str:
        """Identifies the Job across namespaces, in the length of a label."""
        return hashlib.sha1(f"{self.namespace}/{self.name}".encode(), usedforsecurity=False).hexdigest()

    @property
    def exclusive_by(self) -> str:
        """The node label of which the Job takes one domain for itself alone; "" for any place."""
        own = (self.group["template"].get("metadata") or {}).get("annotations") or {}
        shared = self.job_set["metadata"].get("annotations") or {}
        return own.get(EXCLUSIVE) or shared.get(EXCLUSIVE) or ""

    @property
    def pods(self) -> int:
        """Pods that run at the same time."""
        spec = self.group["template"]["spec"]
        parallelism = spec.get("parallelism", 1)
        return min(parallelism, spec.get("completions", parallelism))

    def job(self, *, suspend: bool, domain: str = "") -> Json:
        """The Job as it is created."""
        template = self.group["template"]
        spec = {"completionMode": "Indexed", **copy.deepcopy(template["spec"]), "suspend": suspend}
        spec["template"] = self._pods(domain)
        spec["template"]["spec"].setdefault("restartPolicy", "OnFailure")
        if subdomain := subdomain_of(self.job_set):
            spec["template"]["spec"]["subdomain"] = subdomain
        metadata = self._marked(template.get("metadata") or {})
        metadata |= {"name": self.name, "namespace": self.namespace, "ownerReferences": [owner(self.job_set)]}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}

    def resumed(self, job: Json, domain: str = "") -> Json:
        """The `spec` that starts a suspended Job with the JobSet's present template, in addition to its own content."""
        spec = copy.deepcopy(job["spec"])
        template, wanted = spec["template"], self._pods(domain)
        for part, field in (("metadata", "labels"), ("metadata", "annotations"), ("spec", "nodeSelector")):
            if added := wanted[part].get(field):
                template[part][field] = {**(template[part].get(field) or {}), **added}
        for field in ("tolerations", "schedulingGates"):
            if added := wanted["spec"].get(field):
                have = template["spec"].get(field) or []
                template["spec"][field] = [*have, *(row for row in added if row not in have)]
        return {**spec, "suspend": False}

    def _pods(self, domain: str) -> Json:
        template = copy.deepcopy(self.group["template"]["spec"]["template"])
        template["metadata"] = self._marked(template.get("metadata") or {})
        if domain:
            selector = template["spec"].get("nodeSelector") or {}
            template["spec"]["nodeSelector"] = {**selector, self.exclusive_by: domain}
        return template

    def _marked(self, metadata: Json) -> Json:
        """A copy with the metadata that JobSet puts on child Jobs and their pods, each as label and as annotation."""
        rows = self.job_set["spec"]["replicatedJobs"]
        marks = {
            JOB_SET_NAME: self.job_set["metadata"]["name"],
            REPLICATED_JOB: self.group["name"],
            f"{PREFIX}/replicatedjob-replicas": str(replicas(self.group)),
            f"{PREFIX}/global-replicas": str(sum(replicas(row) for row in rows)),
            JOB_INDEX: str(self.index),
            f"{PREFIX}/job-global-index": str(self.global_index),
            JOB_KEY: self.key,
            RESTART: str(restarts(self.job_set)),
        }
        annotations = {**(metadata.get("annotations") or {}), **marks}
        if self.exclusive_by:
            annotations[EXCLUSIVE] = self.exclusive_by
        return {"labels": {**(metadata.get("labels") or {}), **marks}, "annotations": annotations}


def wanted(job_set: Json) -> Iterator[Child]:
    """Every Job that the JobSet should have, in order."""
    position = 0
    for group in job_set["spec"].get("replicatedJobs") or ():
        for index in range(replicas(group)):
            yield Child(job_set, group, index, position)
            position += 1


def replicas(group: Json) -> int:
    """The number of Jobs of a replicated job. Raises ValueError above the number that this controller creates."""
    count = group.get("replicas", 1)
    if count > MOST_JOBS:
        raise ValueError(f"{count} Jobs are more than {MOST_JOBS}")
    return count


def restarts(job_set: Json) -> int:
    return (job_set.get("status") or {}).get("restarts", 0)


def owner(job_set: Json) -> Json:
    """The reference that makes the JobSet the controller of an object."""
    meta = job_set["metadata"]
    kind = {"apiVersion": job_set["apiVersion"], "kind": job_set["kind"]}
    return {**kind, "name": meta["name"], "uid": meta["uid"], "controller": True, "blockOwnerDeletion": True}


def subdomain_of(job_set: Json) -> str:
    """The name of the headless Service of the pods; "" if the JobSet wants none."""
    network = job_set["spec"].get("network") or {}
    if network.get("enableDNSHostnames") is False:
        return ""
    return network.get("subdomain") or job_set["metadata"]["name"]


def service(job_set: Json) -> Json:
    """The headless Service."""
    network = job_set["spec"].get("network") or {}
    meta = job_set["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": subdomain_of(job_set),
            "namespace": meta["namespace"],
            "ownerReferences": [owner(job_set)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": network.get("publishNotReadyAddresses", True),
            "selector": {JOB_SET_NAME: meta["name"]},
        },
    }
