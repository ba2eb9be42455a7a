"""What the tests of job kinds share: sample objects."""

from __future__ import annotations

from typing import Any

from tests.objects import JobObject

Json = dict[str, Any]


def template(**spec: Any) -> Json:
    """A template as the API server returns it in a Job: with the labels that it generated."""
    generated = {
        "batch.kubernetes.io/controller-uid": "uid",
        "batch.kubernetes.io/job-name": "train",
        "controller-uid": "uid",
        "job-name": "train",
    }
    container = {"name": "main", "image": "train:1", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"creationTimestamp": None, "labels": {"app": "llama", **generated}},
        "spec": {"containers": [container], "restartPolicy": "Never", **spec},
    }


def batch_job(
    *, suspend: bool = True, annotations: Json | None = None, status: Json | None = None, **spec: Any
) -> JobObject:
    meta: Json = {"name": "train", "namespace": "team", "uid": "uid"}
    if annotations:
        meta["annotations"] = annotations
    return JobObject(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": meta,
            "spec": {"suspend": suspend, "parallelism": 4, "completions": 4, "template": template(), **spec},
            "status": status or {},
        }
    )
