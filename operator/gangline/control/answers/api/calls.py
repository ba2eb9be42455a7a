"""Calls of `answers.gangline.io`, as its clients make them: the command line and the dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangline.control.answers.api.discovery import ANSWERS
from gangline.kube.resources import Json, Resource
from gangline.kube.transport import Call

#: seconds for an answer: longer than the operator takes for any
PATIENCE: Final = 50.0
_ROOT: Final = ANSWERS.root(ANSWERS.versions[-1])
_JSON: Final = "application/json"


def get(path: str, query: Mapping[str, str] | None = None) -> Call:
    """A GET of `path` below the group's root."""
    return Call("get", _resource(path), "GET", _ROOT + path, dict(query or {}), within=PATIENCE)


def create(path: str, body: Json) -> Call:
    """A POST to `path` below the group's root."""
    return Call("create", _resource(path), "POST", _ROOT + path, {}, body, _JSON, within=PATIENCE)


def _resource(path: str) -> Resource:
    return Resource(ANSWERS.name, ANSWERS.versions[-1], path.rpartition("/")[2], namespaced=False)
