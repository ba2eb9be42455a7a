"""AdmissionReview v1: the API server's request, and the answer."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from gangline.api.admission import FieldError
from gangline.bounded import SHOWN
from gangline.kube.resources import Json
from gangline_webhooks import envelope
from gangline_webhooks.envelope import BadReviewError

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
#: number of causes in an answer; the message counts the rest
MAX_CAUSES: Final = 32


@dataclass(frozen=True, slots=True)
class Review:
    """One request of the API server. `old` is None unless the object is being updated."""

    uid: str
    operation: str
    obj: Json
    old: Json | None

    @property
    def kind(self) -> str:
        return str(self.obj.get("kind", ""))


def parse(body: bytes) -> Review:
    """Read an admission review. Raises BadReviewError."""
    request = envelope.request_of(body, KIND, API_VERSION, envelope.ADMISSION)
    uid, operation = envelope.uid_of(request), request.get("operation")
    if operation not in ("CREATE", "UPDATE"):
        raise BadReviewError(f"request.operation must be CREATE or UPDATE, is {envelope.brief(operation)}")
    obj, old = request.get("object"), request.get("oldObject")
    if not isinstance(obj, dict):
        raise BadReviewError("request.object is missing")
    if operation == "UPDATE" and not isinstance(old, dict):
        raise BadReviewError("request.oldObject is missing")
    _place(obj, request)
    return Review(uid, operation, obj, old if operation == "UPDATE" else None)


def _place(obj: Json, request: Json) -> None:
    """A new object may have its namespace only in the URL."""
    meta = obj.get("metadata")
    if isinstance(meta, dict) and not meta.get("namespace") and isinstance(request.get("namespace"), str):
        meta["namespace"] = request["namespace"]


def allowed(review: Review, operations: Sequence[Json] = (), warnings: Sequence[str] = ()) -> Json:
    """Allowed, with these changes."""
    response: Json = {"uid": review.uid, "allowed": True}
    if operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(list(operations))).decode()
    if warnings:
        response["warnings"] = list(warnings)
    return _answer(response)


def denied(review: Review, errors: Sequence[FieldError]) -> Json:
    """Denied, because of these fields."""
    shown = errors[:MAX_CAUSES]
    message = "; ".join(str(error) for error in shown)
    if len(errors) > MAX_CAUSES:
        message += f"; and {len(errors) - MAX_CAUSES} more"
    meta = review.obj.get("metadata")
    details: Json = {
        "group": str(review.obj.get("apiVersion", "")).rpartition("/")[0],
        "kind": review.kind,
        "name": str(meta.get("name", "")) if isinstance(meta, dict) else "",
        "causes": [{"reason": error.reason, "message": error.detail, "field": error.path} for error in shown],
    }
    # as Kueue's webhooks, whose validators return plain errors: Forbidden, with the field errors as the message
    status: Json = {"status": "Failure", "code": 403, "reason": "Forbidden", "message": message, "details": details}
    return _answer({"uid": review.uid, "allowed": False, "status": status})


#: reasons of a metav1.Status
_REASONS: Final = {413: "RequestEntityTooLarge", 429: "TooManyRequests"}


def refused(uid: str, code: int, message: str, retry_after: int = 0) -> Json:
    """Denied without being judged. API servers pass code and time on, and clients send a 429 again after that time."""
    status: Json = {"status": "Failure", "code": code, "reason": _REASONS[code], "message": message}
    if retry_after:
        status["details"] = {"retryAfterSeconds": retry_after}
    return _answer({"uid": uid, "allowed": False, "status": status})


def failed(review: Review, error: Exception) -> Json:
    """Denied, because this object could not be processed; others are, and its author gets the reason."""
    meta = review.obj.get("metadata")
    name = meta.get("name", "") if isinstance(meta, dict) else ""
    what = f"{review.kind[:SHOWN]} {str(name)[:SHOWN]}".strip()
    message = f"{what} can't be understood ({type(error).__name__}); the log of the webhooks says where"
    status: Json = {"status": "Failure", "code": 500, "reason": "InternalError", "message": message}
    return _answer({"uid": review.uid, "allowed": False, "status": status})


def _answer(response: Json) -> Json:
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}
