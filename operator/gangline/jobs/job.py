"""batch/v1 Job.

Held by `spec.suspend`. Admission goes into its one pod template, and parallelism is cut to what was admitted. It is
stopped in three steps, because the API server lets a template be changed only on a suspended Job that has no start time
and (since Kubernetes 1.36) no active pods:

1. suspend it, marked with the `stopping` annotation, and wait until its controller has requested that its pods be deleted;
2. null `status.startTime`, where the Job controller has not done so itself;
3. restore template and parallelism, and drop the mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gangline import bounded
from gangline.api import names
from gangline.api.jobkinds import own
from gangline.api.read import merge
from gangline.jobs import base, podspec
from gangline.jobs.base import Children, Declared, JobError, JobOutcome, JobWrite, Json, Patch, PodSetInfo, RuntimeHints
from gangline.objects import JobObject

MAIN: Final = "main"
INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"
_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")
#: Labels that the API server puts on the template of every Job; a Workload keeps only the last of them.
_GENERATED_LABELS = (*_UID_LABELS, *_NAME_LABELS)
_DROPPED_LABELS = _GENERATED_LABELS[:-1]
#: the most indexes that Kubernetes lets an Indexed Job have; and characters of an index set: a longer one counts as empty
_MOST_INDEXES: Final = 100_000
_LONGEST_SET: Final = 131_072
#: fields that say how many pods it has; an Indexed one may change both together
_SIZES: Final = ("parallelism", "completions")
#: fields of the status that count pods that exist
_COUNTS_OF_RUNNING: Final = ("active", "ready", "terminating")
_SUSPENDED: Final = {
    "type": "Suspended",
    "status": "True",
    "reason": "MultiKueueAdapter",
    "message": "Set by MultiKueue adapter",
}
_MIN_PARALLELISM_PATH = f"metadata.annotations[{names.MIN_PARALLELISM}]"


class BatchJob(Declared):
    """Implements `gangline.jobs.base.JobKind`."""

    declaration = own.JOB

    def is_suspended(self, job: JobObject) -> bool:
        return bool(job.spec.get("suspend")) and not _stopping(job)

    def pod_sets(self, job: JobObject) -> list[Json]:
        spec = job.spec
        pod_set: Json = {
            "name": MAIN,
            "count": _count(spec),
            "template": podspec.without_labels(spec["template"], _DROPPED_LABELS),
        }
        if (least := _min_count(job)) is not None:
            if least > pod_set["count"]:
                raise JobError(f"{least} is more than the Job's {pod_set['count']} pods", _MIN_PARALLELISM_PATH)
            pod_set["minCount"] = least
        if request := podspec.topology_request(spec["template"], INDEX_LABEL):
            pod_set["topologyRequest"] = request
        return [pod_set]

    def resizable(self, job: JobObject) -> frozenset[str]:
        return frozenset({MAIN})

    def start(self, job: JobObject, infos: Sequence[PodSetInfo]) -> Patch | None:
        spec = job.spec
        if not spec.get("suspend"):
            return None
        if _stopping(job):
            raise ValueError("a Job that is still being stopped can't be started")
        (info,) = infos
        template = podspec.keep_off(podspec.merge(spec["template"], info), info.avoid)
        wanted = {**spec, "suspend": False, "template": template}
        if _min_count(job) is not None:
            _scale(wanted, job, info.count)
        return Patch({"spec": merge.difference(spec, wanted)})

    def not_kept(self, job: JobObject, infos: Sequence[PodSetInfo]) -> list[str]:
        (info,) = infos
        have = podspec.parts_of(job.spec["template"])
        missing = [f"spec.template: {part}" for part in podspec.lacking(have, podspec.additions_of(info))]
        more = _min_count(job) is not None and _count(job.spec) > info.count
        return [*missing, "spec.parallelism"] if more else missing

    def stop(self, job: JobObject, pod_sets: Sequence[Json]) -> Patch | None:
        mark = {"metadata": {"annotations": {names.STOPPING: "true"}}}
        spec = job.spec
        if self.finished(job):
            return None
        if not spec.get("suspend"):
            return base.confirmed_start(job) or Patch({**mark, "spec": {"suspend": True}})
        restoring = merge.difference(spec, _restored(job, pod_sets))
        if not restoring and not _stopping(job):
            return None
        status = job.status
        if not _stopping(job) and (status.get("active") or status.get("startTime")):
            return Patch(mark)  # suspended by hand: without the mark it would look like a Job at rest
        if status.get("active") or base.is_stopping(job):
            return None
        if status.get("startTime") and base.is_ending(job):
            return None  # it could not end without
        if status.get("startTime"):
            return Patch({"status": {"startTime": None}}, "status")
        body: Json = {"spec": restoring} if restoring else {}
        if _stopping(job):
            body["metadata"] = {"annotations": {names.STOPPING: None}}
        return Patch(body)

    def runtime_hints(self, job: JobObject) -> RuntimeHints:
        return RuntimeHints(podspec.annotated(job), podspec.positive(job.spec.get("activeDeadlineSeconds")))

    def workload_annotations(self, job: JobObject) -> dict[str, str]:
        return self.node_loss(job) | base.checkpoints(job)

    def attempt(self, job: JobObject) -> int | None:
        return podspec.attempt_of(job.spec["template"])

    def is_active(self, job: JobObject, children: Children) -> bool:
        status = job.status
        if status.get("active") or base.is_stopping(job):
            return True
        # A Job that replaces pods only after they are gone says by this that its pods cannot share their devices with their
        # successors. Other Jobs release their quota while the last pods terminate, as in Kueue.
        return job.spec.get("podReplacementPolicy") == "Failed" and bool(status.get("terminating"))

    def has_seen_suspension(self, job: JobObject) -> bool:
        return self.finished(job) is not None or base.has_seen_suspension(job)

    def finished(self, job: JobObject) -> JobOutcome | None:
        row = job.true_condition("Complete") or job.true_condition("Failed")
        return JobOutcome(row["type"] == "Complete", row.get("message") or "") if row is not None else None

    def pods_ready(self, job: JobObject) -> bool:
        status = job.status
        uncounted = (status.get("uncountedTerminatedPods") or {}).get("succeeded") or []
        return status.get("succeeded", 0) + status.get("ready", 0) + len(uncounted) >= _count(job.spec)

    def reclaimable(self, job: JobObject) -> dict[str, int]:
        spec, count = job.spec, _count(job.spec)
        ended = _ended(job)
        remaining = _completions(spec) - ended
        if count <= 1 or not ended or remaining >= count:
            return {}
        return {MAIN: count - max(remaining, 0)}

    def sync(self, job: JobObject, infos: Sequence[PodSetInfo] | None, children: Children) -> list[JobWrite]:
        return []

    def sent(self, job: JobObject, pod_sets: Sequence[Json]) -> Json:
        dropped = ("managedBy", "selector", "manualSelector", self.declaration.expiry[-1])
        spec = {name: value for name, value in _restored(job, pod_sets).items() if name not in dropped}
        return {**spec, "suspend": True, "template": podspec.without_labels(spec["template"], _GENERATED_LABELS)}

    def size_of(self, job: JobObject) -> Json:
        return {name: job.spec.get(name) for name in _SIZES}

    def resized(self, remote: JobObject, job: JobObject) -> Json:
        return {name: value for name, value in self.size_of(job).items() if remote.spec.get(name) != value}

    def mirrored(self, job: JobObject, remote: JobObject | None) -> Json | None:
        status: Json = job.status
        if remote is None:
            wanted = {name: value for name, value in status.items() if name not in _COUNTS_OF_RUNNING}
        elif job.spec.get("suspend") and not remote.spec.get("suspend") and self.finished(remote) is None:
            # It starts here only when the check is ready. A start time would keep its template from being changed, and since
            # Kubernetes 1.36 only a Job that is known to be suspended may be changed.
            others = [row for row in job.conditions if row.get("type") != "Suspended"]
            wanted = status if job.is_true("Suspended") else {**status, "conditions": [*others, dict(_SUSPENDED)]}
        else:
            wanted = _never_fewer(status, remote.status)
        return wanted if merge.difference(status, wanted) else None


@bounded.parser(_LONGEST_SET, instead=frozenset[int](), worst=("0-", "0,", "0-99999,", "9", "-"))
def indexes(text: str) -> frozenset[int]:
    """The members of an index set as Kubernetes writes it: "0-3,5" is {0, 1, 2, 3, 5}. An invalid one, or one with more members
    than a Job can have pods, has no members.
    """
    ranges: list[range] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        low, high = bounded.whole(first), bounded.whole(last or first)
        if low is None or high is None:
            return frozenset()
        ranges.append(range(low, high + 1))
    if sum(map(len, ranges)) > _MOST_INDEXES:
        return frozenset()
    return frozenset(number for each in ranges for number in each)


def _stopping(job: JobObject) -> bool:
    return names.STOPPING in job.annotations


def _parallelism(spec: Json) -> int:
    return _number(spec, "parallelism", 1)


def _completions(spec: Json) -> int:
    return _number(spec, "completions", _parallelism(spec))


def _number(spec: Json, name: str, default: int) -> int:
    value = spec.get(name)
    if value is not None and type(value) is not int:
        raise JobError("must be a whole number", f"spec.{name}")
    if value is not None and value < 0:
        raise JobError(f"must not be negative, is {value}", f"spec.{name}")
    return default if value is None else value


def _count(spec: Json) -> int:
    """The most pods that run at the same time; 0 for a Job that is paused, or is complete at once."""
    return min(_parallelism(spec), _completions(spec))


def _min_count(job: JobObject) -> int | None:
    text = job.annotations.get(names.MIN_PARALLELISM)
    if text is None:
        return None
    least = bounded.whole(text)
    if not least:
        raise JobError(f"{bounded.shown(text)} is not a whole number of at least 1", _MIN_PARALLELISM_PATH)
    return least


def _completions_follow(job: JobObject) -> bool:
    text = job.annotations.get(names.COMPLETIONS_EQUAL_PARALLELISM, "")
    return text in ("1", "t", "T", "true", "TRUE", "True")


def _scale(spec: Json, job: JobObject, count: int) -> None:
    """Let `count` pods run at the same time; a Job that already does so keeps what its user wrote."""
    if _count(spec) == count:
        return
    spec["parallelism"] = count
    if _completions_follow(job):
        spec["completions"] = count


def _restored(job: JobObject, pod_sets: Sequence[Json]) -> Json:
    """`spec` of a suspended Job as it was before any admission; unchanged if nothing is known of that."""
    spec = dict(job.spec)
    for pod_set in pod_sets:
        spec["template"] = podspec.restore(spec["template"], pod_set["template"], _GENERATED_LABELS)
        if pod_set.get("minCount") is not None:
            _scale(spec, job, pod_set["count"])
    return spec


def _never_fewer(status: Json, remote: Json) -> Json:
    """The remote status. The API server refuses counts of ended pods that decrease, and in a second cluster they begin at 0."""
    counts = {name: max(status.get(name) or 0, remote.get(name) or 0) for name in ("succeeded", "failed")}
    return {**remote, **{name: count for name, count in counts.items() if count}}


def _ended(job: JobObject) -> int:
    """Pods that have ended and will not be replaced."""
    status = job.status
    if job.spec.get("completionMode") == "Indexed":
        ended = indexes(status.get("completedIndexes") or "") | indexes(status.get("failedIndexes") or "")
        return sum(index < _completions(job.spec) for index in ended)  # an elastic Job that has shrunk may list others
    return status.get("succeeded", 0)
