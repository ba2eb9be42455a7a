"""JSON patches carried out, apart from the code that makes them."""

from __future__ import annotations

import copy
from typing import Any

Json = dict[str, Any]


def apply(document: Json, operations: list[Json]) -> Json:
    """RFC 6902, strict about parents that are missing."""
    document = copy.deepcopy(document)
    for operation in operations:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        target: Any = document
        for part in way:
            target = target[int(part)] if isinstance(target, list) else target[part]
        key: Any = int(last) if isinstance(target, list) else last
        match operation["op"]:
            case "remove":
                del target[key]
            case "replace":
                assert isinstance(target, list) or key in target
                target[key] = copy.deepcopy(operation["value"])
            case "add":
                assert isinstance(target, dict)
                assert key not in target
                target[key] = copy.deepcopy(operation["value"])
    return document
