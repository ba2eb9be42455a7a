"""The restart policy of a GPUJob for failed pods.

`RestartGang` (the default): one failed pod fails its child Job, and the whole gang starts again, at most `maxRestarts` times.
`RestartPod`: the child Job replaces failed pods, at most `maxRestarts` of them per role. `Fail`: the first failure is final.

The gang's restarts are counted in `status.restarts`, and every child is stamped with the count at its creation. Raising the
count is the one write that decides a restart: it makes the old children stale, and they are replaced.
"""

from __future__ import annotations

from typing import Final

from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.api.read import reading
from gangline.api.read.workloads import swap_record
from gangline.objects import JobObject

RESTART_GANG: Final = "RestartGang"
RESTART_POD: Final = "RestartPod"
_DEFAULT_LIMIT: Final = 3
#: Reasons of a failed Job that another attempt would not cure.
_FINAL_REASONS: Final = frozenset({"DeadlineExceeded"})


def made(job: JobObject) -> int:
    """How often the gang has been restarted so far."""
    return job.status.get("restarts") or 0


def pod_retries(job: JobObject) -> int:
    """`backoffLimit` of the child Jobs."""
    return _limit(job) if _policy(job) == RESTART_POD else 0


def allowed(job: JobObject, reason: str) -> bool:
    """Whether the gang may start again after a child Job has failed for `reason`."""
    return _policy(job) == RESTART_GANG and reason not in _FINAL_REASONS and made(job) < _limit(job)


def left(job: JobObject) -> bool:
    """Whether the gang may be restarted once more."""
    return made(job) < _limit(job)


def time_left(job: JobObject, limit: int) -> int:
    """The time that the next attempt may take of `limit` seconds, at least one.

    A job without a queue has no Workload that counts its time, so the time of earlier attempts is counted here: from the start
    of the first to the end of the last. With a queue the Workload enforces the limit, over evictions too; this is only its
    backstop.
    """
    status = job.status
    started, ended = status.get("startTime"), [each["time"] for each in status.get("interruptions") or ()]
    if not made(job) or not started or not ended or queue_name(job):
        return limit
    taken = reading.parse_time(max(ended)) - reading.parse_time(started)
    return max(1, limit - max(0, round(taken / 1000)))


def on_lost_node(job: JobObject) -> str:
    """The reaction to a lost node, in the words of the Workload's annotation; "" = only the lost pods are replaced."""
    choice = (job.spec.get("restart") or {}).get("onNodeFailure") or "Swap"
    if choice == "Swap":
        return "" if _policy(job) == RESTART_POD else swap_record.RESTART
    return swap_record.REQUEUE if choice == "Restart" else swap_record.FAIL


def _limit(job: JobObject) -> int:
    limit = (job.spec.get("restart") or {}).get("maxRestarts")
    return _DEFAULT_LIMIT if limit is None else limit


def _policy(job: JobObject) -> str:
    return (job.spec.get("restart") or {}).get("onPodFailure") or RESTART_GANG
