"""The state of a check, from the conditions of its newest request. The order of the rules and the messages are Kueue's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gangline.api.read.conditions import cut
from gangline.api.schema.v1beta2.provisioning import RetryStrategy
from gangline.kube.resources import Json
from gangline.objects import Stored

ACCEPTED: Final = "Accepted"
PROVISIONED: Final = "Provisioned"
FAILED: Final = "Failed"
BOOKING_EXPIRED: Final = "BookingExpired"
CAPACITY_REVOKED: Final = "CapacityRevoked"

PENDING: Final = "Pending"
READY: Final = "Ready"
RETRY: Final = "Retry"
REJECTED: Final = "Rejected"

#: the AdmissionCheck has no usable configuration
UNCONFIGURED: Final = "the check is not active"
NOT_NEEDED: Final = "the provisioning request is not needed"

#: seconds of the longest wait: the field is a 32-bit number
_LONGEST_WAIT: Final = 2**31 - 1


def unconfigured(row: Json) -> Json:
    return {**row, "state": PENDING, "message": UNCONFIGURED}


def not_needed(row: Json) -> Json:
    """The row of a check that is ready without a request: what an earlier admission's request added to the pods
    does not apply.
    """
    if row["state"] == READY:
        return row
    return {**_without(row, "podSetUpdates"), "state": READY, "message": NOT_NEEDED}


def followed(
    row: Json,
    request: Stored,
    attempt: int,
    retry: RetryStrategy,
    *,
    admitted: bool,
    active: bool,
    updates: Callable[[], Sequence[Json]],
) -> Json:
    """The row of `status.admissionChecks` as the request's conditions say. `updates`: what the pods get on its nodes."""
    if (failed := request.true_condition(FAILED)) is not None:
        return _failed(row, attempt, retry, failed, "Retrying after failure")
    if (revoked := request.true_condition(CAPACITY_REVOKED)) is not None:
        # the nodes are gone: pods that replace others there would wait for ever
        return {**row, "state": REJECTED, "message": _message(revoked)} if active else row
    if (expired := request.true_condition(BOOKING_EXPIRED)) is not None:
        return row if admitted else _failed(row, attempt, retry, expired, "Retrying after booking expired")
    if (provisioned := request.true_condition(PROVISIONED)) is not None:
        if row["state"] == READY:
            return row
        return {**row, "state": READY, "message": _message(provisioned), "podSetUpdates": list(updates())}
    if request.is_true(ACCEPTED):
        expected = request.condition(PROVISIONED)  # says when the nodes will be there
        return row if expected is None else {**row, "state": PENDING, "message": _message(expected)}
    return {**row, "state": PENDING, "message": ""}


def has_failed(request: Stored, *, admitted: bool) -> bool:
    """Whether another attempt follows this request. A booking that expires under a running workload has done its work."""
    expired = request.is_true(BOOKING_EXPIRED) and not admitted
    return expired or request.is_true(FAILED)


def _failed(row: Json, attempt: int, retry: RetryStrategy, condition: Json, words: str) -> Json:
    """Retry up to the limit, once for each attempt: a request whose failure was counted already changes only the message."""
    if attempt > retry.backoff_limit_count:
        return {**row, "state": REJECTED, "message": _message(condition)}
    said = {**row, "message": cut(f"{words}: {condition.get('message', '')}")}
    retries = row.get("retryCount") or 0
    if attempt <= retries:
        return said
    return {**said, "state": RETRY, "requeueAfterSeconds": wait(retry, retries + 1)}


def wait(retry: RetryStrategy, times: int) -> int:
    """Seconds until a request that has failed for the n-th time is made again. The limit does not apply to the first wait."""
    first, most = retry.backoff_base_seconds, retry.backoff_max_seconds or _LONGEST_WAIT
    seconds = first if times <= 1 else min(first * 2 ** min(times - 1, 31), most)
    return max(0, min(seconds, _LONGEST_WAIT))


def _message(condition: Json) -> str:
    return cut(condition.get("message", ""))


def _without(row: Json, name: str) -> Json:
    return {key: value for key, value in row.items() if key != name}
