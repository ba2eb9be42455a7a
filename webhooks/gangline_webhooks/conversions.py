"""ConversionReview v1: objects of one version in, the same objects in another version out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import orjson

Json: TypeAlias = dict[str, Any]
Convert: TypeAlias = Callable[[Json, str], Json]

log = logging.getLogger(__name__)

API_VERSION: Final = "apiextensions.k8s.io/v1"


class BadConversionError(ValueError):
    """The request is no ConversionReview that can be answered."""


def answer(body: bytes, convert: Convert) -> Json:
    """The ConversionReview to send back. One object that can't be converted fails the review, as the API demands, with
    a message that names the object. Raises BadConversionError for a body that is no review."""
    request = _request(body)
    uid, version, objects = request.get("uid"), request.get("desiredAPIVersion"), request.get("objects")
    if not isinstance(uid, str) or not uid:
        raise BadConversionError("request.uid is missing")
    if not isinstance(version, str) or not version:
        raise BadConversionError("request.desiredAPIVersion is missing")
    if not isinstance(objects, list):
        raise BadConversionError("request.objects is missing")
    try:
        converted = [_converted(obj, version, convert) for obj in objects]
    except _FailedError as failure:
        log.warning("%s", failure)
        result: Json = {"status": "Failure", "message": str(failure)}
        return _review({"uid": uid, "convertedObjects": [], "result": result})
    return _review({"uid": uid, "convertedObjects": converted, "result": {"status": "Success"}})


class _FailedError(Exception):
    """One object could not be converted; the text names it."""


def _request(body: bytes) -> Json:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadConversionError(f"the body is not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("kind") != "ConversionReview":
        raise BadConversionError('the body is not a ConversionReview: kind must be "ConversionReview"')
    if document.get("apiVersion") != API_VERSION:
        raise BadConversionError(f'apiVersion must be "{API_VERSION}"')
    request = document.get("request")
    if not isinstance(request, dict):
        raise BadConversionError("request is missing")
    return request


def _converted(obj: object, version: str, convert: Convert) -> Json:
    if not isinstance(obj, dict):
        raise _FailedError("an entry of request.objects is not an object")
    try:
        return convert(obj, version)
    except Exception as error:  # whatever is wrong with one object must come back as words, not as a dead connection
        meta = obj.get("metadata")
        name = meta.get("name") if isinstance(meta, dict) else None
        raise _FailedError(f"{obj.get('kind')} {name}: can't be converted to {version}: {error}") from error


def _review(response: Json) -> Json:
    return {"apiVersion": API_VERSION, "kind": "ConversionReview", "response": response}
