"""The role of a pod within its group: a hash of what its quota and its node depend on. Pods of one role are one pod set.

The hash is Kueue's: eight hexadecimal digits of the SHA-256 of a JSON text, so that groups of pods that Kueue and Gangline have
marked fit together. Kueue encodes the API's Go types; the API server sends their fields in the same order, which is kept here.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final, cast

from gangline.api.unchecked import listing, mapping
from gangline.kube.resources import Json

_LENGTH: Final = 8
#: fields that count as they are, absent ones as null
_FIELDS: Final = (
    *("nodeSelector", "affinity", "tolerations", "runtimeClassName", "priority", "topologySpreadConstraints"),
    *("overhead", "resourceClaims"),
)
#: Kueue's encoder writes these characters as escapes
_ESCAPED: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def role_hash(spec: Json) -> str:
    """The role of a pod with this spec, which may be of any shape."""
    shape: Json = {name: spec.get(name) for name in _FIELDS}
    for name in ("nodeSelector", "overhead"):
        if isinstance(shape[name], dict):
            shape[name] = _sorted(mapping(shape[name]))
    for name in ("initContainers", "containers"):
        shape[name] = [_container(mapping(each)) for each in listing(spec.get(name))] or None
    if isinstance(spec.get("resources"), dict):  # Kueue's hashes of pods without them are older than this field
        shape["resources"] = _requests(mapping(spec["resources"]))
    text = json.dumps({"spec": _sorted(shape)}, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.translate(_ESCAPED).encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]


def _container(container: Json) -> Json:
    return {
        "ports": container.get("ports"),
        "resources": {"requests": _requests(mapping(container.get("resources")))},
    }


def _requests(resources: Json) -> object:
    requests = resources.get("requests")
    return _sorted(mapping(cast(object, requests))) if isinstance(requests, dict) else requests


def _sorted(fields: Json) -> Json:
    return {name: fields[name] for name in sorted(fields, key=str)}
