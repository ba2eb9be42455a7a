"""Writing at a path: the object itself changes, and nothing that others share with it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gangline.api.jobkinds.declaration import Path, at, drop, put

Json = dict[str, Any]
OBJ: Json = {
    "spec": {"roles": [{"name": "a", "template": {"spec": {}}}, {"name": "b"}], "text": "x"},
    "status": {"n": 1},
}


@pytest.mark.parametrize(
    "path",
    [("spec", "suspend"), ("spec", "roles", 0, "template", "spec", "env"), ("metadata", "labels", "a"), ("kind",)],
)
def test_what_is_written_or_removed_changes_nothing_that_is_shared(path: Path) -> None:
    obj, before = dict(OBJ), copy.deepcopy(OBJ)
    put(obj, path, "new")
    assert at(obj, path) == "new" and before == OBJ
    assert obj["status"] is OBJ["status"] and obj["spec"]["roles"][1] is OBJ["spec"]["roles"][1]
    written = copy.deepcopy(obj)
    kept = dict(obj)
    drop(kept, path)
    assert at(kept, path) is None and obj == written


@pytest.mark.parametrize("path", [("spec", "text", "inner"), ("spec", "roles", 7, "name"), ("spec", "roles", "a", "b")])
def test_nothing_is_written_where_there_is_no_place(path: Path) -> None:
    obj = copy.deepcopy(OBJ)
    put(obj, path, "new")
    drop(obj, path)
    assert obj == OBJ
