"""ConversionReview v1: objects of one version in, the same objects in another version out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from gangline.bounded import SHOWN
from gangline.kube.resources import Json
from gangline_webhooks import envelope
from gangline_webhooks.envelope import BadReviewError

Convert: TypeAlias = Callable[[Json, str], Json]

log = logging.getLogger(__name__)

API_VERSION: Final = "apiextensions.k8s.io/v1"
KIND: Final = "ConversionReview"


def answer(body: bytes, convert: Convert) -> Json:
    """The ConversionReview to return. One object that cannot be converted fails the review, as the API demands, with a message
    that names the object. Raises BadReviewError for a body that is no review.
    """
    request = envelope.request_of(body, KIND, API_VERSION, envelope.CONVERSION)
    uid, version, objects = envelope.uid_of(request), request.get("desiredAPIVersion"), request.get("objects")
    if not isinstance(version, str) or not version:
        raise BadReviewError("request.desiredAPIVersion is missing")
    if not isinstance(objects, list):
        raise BadReviewError("request.objects is missing")
    try:
        converted = [_converted(obj, version, convert) for obj in objects]
    except _FailedError as failure:
        log.warning("%s", failure)
        return failed(uid, str(failure))
    return _review({"uid": uid, "convertedObjects": converted, "result": {"status": "Success"}})


def failed(uid: str, message: str) -> Json:
    """The answer without an object."""
    return _review({"uid": uid, "convertedObjects": [], "result": {"status": "Failure", "message": message}})


class _FailedError(Exception):
    """One object could not be converted; the text names it."""


def _converted(obj: object, version: str, convert: Convert) -> Json:
    if not isinstance(obj, dict):
        raise _FailedError("an entry of request.objects is not an object")
    try:
        return convert(obj, version)
    except Exception as error:  # an error of one object must be returned in words, not as a closed connection
        meta = obj.get("metadata")
        name = meta.get("name") if isinstance(meta, dict) else None
        raise _FailedError(
            f"{str(obj.get('kind'))[:SHOWN]} {str(name)[:SHOWN]}: can't be converted to {version[:SHOWN]}: {str(error)[:200]}"
        ) from error


def _review(response: Json) -> Json:
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}
