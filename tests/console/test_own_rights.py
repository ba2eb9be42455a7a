"""What `why` and `queue` say where no operator answers: also what its events say of jobs, with or without a Workload."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from gangline.console.commands.see import why
from gangline.console.views import own_rights
from gangline.control.answers.workloads.snapshot import AnswerSnapshot, JobState, workload_view
from gangline.kube.errors import Forbidden, NotFound
from gangline.kube.resources import EVENTS, JOBS, LOCAL_QUEUES, Resource
from gangline.objects import WorkloadObject

Json = dict[str, Any]
NOTE = 'priorityClassName: PriorityClass "low-priority" not found'


def event(uid: str, name: str, reason: str = "ErrWorkloadCompose", ago: float = 12, **more: Any) -> Json:
    at = datetime.fromtimestamp(time.time() - ago, UTC).isoformat().replace("+00:00", "Z")
    return {
        "type": "Warning",
        "reportingController": "gangline.io/operator",
        "reason": reason,
        "note": NOTE,
        "eventTime": at,
        "regarding": {"kind": "Job", "namespace": "ml", "name": name, "uid": uid},
        **more,
    }


class Api:
    """Serves events, LocalQueues and Jobs."""

    def __init__(self, events: list[Json], **jobs: str) -> None:
        self.events = events
        self.jobs = jobs
        self.queues: list[str] | None = ["lq"]
        self.named = "lq"

    async def list(self, resource: Resource, namespace: str) -> Any:
        assert (resource, namespace) == (LOCAL_QUEUES, "ml")
        if self.queues is None:
            raise Forbidden(403, "Forbidden", "localqueues is forbidden")
        return SimpleNamespace(items=[{"metadata": {"name": each}} for each in self.queues])

    async def pages(self, resource: Resource, namespace: str | None, *, field_selector: str) -> AsyncGenerator[Any]:
        assert (resource, field_selector) == (EVENTS, "type=Warning")
        yield SimpleNamespace(items=self.events)

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        if resource != JOBS or name not in self.jobs:
            raise NotFound(404, "NotFound", f"no {name}")
        labels = {"kueue.x-k8s.io/queue-name": self.named} if self.named else {}
        meta = {"name": name, "namespace": namespace, "uid": self.jobs[name], "labels": labels}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"parallelism": 2}}


async def test_jobs_without_a_workload_are_listed_with_what_holds_them() -> None:
    others = event("u9", "other", reportingController="some-controller")
    api: Any = Api(
        [event("u1", "pcjob"), event("u2", "gone"), event("u3", "made-again"), others], pcjob="u1", other="u9"
    )
    api.jobs["made-again"] = "u4"
    warned = await own_rights.warned(api, "ml")
    assert len(warned) == 3
    (held,) = await own_rights.held(api, warned, AnswerSnapshot((), ()))
    assert (held.job, held.state, held.reason, held.message) == (
        "job/pcjob",
        JobState.NOT_QUEUED,
        "ErrWorkloadCompose",
        NOTE,
    )


async def test_why_of_a_job_without_a_workload_repeats_the_operators_event() -> None:
    message = await why._no_workload(Api([event("u1", "pcjob")], pcjob="u1"), "ml", "job/pcjob")  # type: ignore[arg-type]
    assert "Job ml/pcjob names queue 'lq' and has no Workload" in message
    assert f"ErrWorkloadCompose, 12s ago: {NOTE}" in message
    quiet = await why._no_workload(Api([], pcjob="u1"), "ml", "job/pcjob")  # type: ignore[arg-type]
    assert "is the operator running?" in quiet


async def test_why_of_a_job_without_its_queue_names_those_that_there_are() -> None:
    """Also where no operator answers, as while it is installed."""
    api: Any = Api([], train="u1")
    api.queues, api.named = ["spare", "gpus"], ""
    message = await why._no_workload(api, "ml", "train")
    assert message.endswith("does not manage it; LocalQueues of namespace ml: gpus, spare")
    api.named = "gpu"
    message = await why._no_workload(api, "ml", "train")
    assert "names queue 'gpu', which does not exist" in message and message.endswith(": gpus, spare")
    api.queues = None
    assert "is the operator running?" in await why._no_workload(api, "ml", "train"), "she may not list them"


async def test_a_workload_has_the_warnings_about_its_job() -> None:
    owner = {"kind": "Job", "name": "train", "uid": "u1", "controller": True, "apiVersion": "batch/v1"}
    conditions = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
    metadata = {"name": "w", "namespace": "ml", "uid": "w", "ownerReferences": [owner]}
    raw = WorkloadObject({"metadata": metadata, "spec": {"podSets": []}, "status": {"conditions": conditions}})
    api: Any = Api([event("u1", "train", "WriteRefused")])
    (view,) = own_rights.with_warnings([workload_view(raw, {})], await own_rights.warned(api, "ml"))
    assert view.obstacle == f"WriteRefused, 12s ago: {NOTE}" == view.warnings[0]


async def test_who_may_not_read_events_is_told_the_rest() -> None:
    class Closed(Api):
        async def pages(self, resource: Resource, namespace: str | None, *, field_selector: str) -> AsyncGenerator[Any]:
            raise Forbidden(403, "Forbidden", "events is forbidden")
            yield

    assert await own_rights.warned(Closed([]), "ml") == []  # type: ignore[arg-type]
