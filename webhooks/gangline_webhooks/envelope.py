"""The common form of all reviews: a document with a request in it, answered by one with a response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import orjson

from gangline import bounded
from gangline.kube.resources import Json


@dataclass(frozen=True, slots=True)
class ReviewLimits:
    """Bytes and JSON values of the largest review."""

    most_bytes: int
    most_values: int


#: An object is stored with 1.5 MiB at most, and a change is reviewed with what was stored before. A review of so many values is
#: judged within some tens of milliseconds; usual jobs have some hundreds, a gang of 18 different pods some thousands.
ADMISSION: Final = ReviewLimits(4 * 2**20, 100_000)
#: The objects of a list may come together.
CONVERSION: Final = ReviewLimits(16 * 2**20, 500_000)


class BadReviewError(ValueError):
    """The body is no review that can be answered; the text names the wrong part."""


class TooLargeReviewError(BadReviewError):
    """The body is over a limit; the text names it."""


def request_of(body: bytes, kind: str, api_version: str, limits: ReviewLimits) -> Json:
    """The `request` of a review of this kind. Raises BadReviewError, TooLargeReviewError."""
    try:
        document = bounded.load_json(body, most_bytes=limits.most_bytes, most_values=limits.most_values)
    except bounded.TooLargeJsonError as error:
        raise TooLargeReviewError(f"it is too large to be checked: {error}") from None
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
