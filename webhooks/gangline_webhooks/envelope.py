"""The common form of all reviews: a document with a request in it, answered by one with a response."""

from __future__ import annotations

from typing import Final

import orjson

from gangline import bounded
from gangline.kube.resources import Json

#: bytes; the API server itself accepts no request larger than 3 MiB, and a review has the object twice
MAX_BODY: Final = 16 * 2**20


class BadReviewError(ValueError):
    """The body is no review that can be answered; the text names the wrong part."""


def request_of(body: bytes, kind: str, api_version: str) -> Json:
    """The `request` of a review of this kind. Raises BadReviewError."""
    try:
        document = bounded.load_json(body, most_bytes=MAX_BODY)
    except bounded.BadJsonError as error:
        raise BadReviewError(f"the body is {error}") from None
    if not isinstance(document, dict) or document.get("kind") != kind:
        raise BadReviewError(f'the body is no {kind}: kind must be "{kind}"')
    if document.get("apiVersion") != api_version:
        raise BadReviewError(f'apiVersion must be "{api_version}", is {brief(document.get("apiVersion"))}')
    request = document.get("request")
    if not isinstance(request, dict):
        raise BadReviewError("request is missing")
    return request


def uid_of(request: Json) -> str:
    """The review's uid, which the answer repeats. Raises BadReviewError."""
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise BadReviewError("request.uid is missing")
    return uid


def brief(value: object) -> str:
    return orjson.dumps(value, default=str).decode()[:80]
