"""Cards by an environment variable, for runtimes that trust it: `gangline.io/gpu-visible-devices: NVIDIA_VISIBLE_DEVICES`.

Each container gets the variable, whose value is the pod's annotation `gangline.io/cards`. The kubelet reads that when the
container starts, after the cards have been chosen. Where none were, the value is empty, which for NVIDIA's runtime is no card.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from gangline.api import names
from gangline.api.sharing import own
from gangline.api.sharing.fault import ShareFault
from gangline.api.unchecked import listing, mapping
from gangline.bounded import parser
from gangline.engine.model import Share

#: of NVIDIA's container runtime
NVIDIA: Final = "NVIDIA_VISIBLE_DEVICES"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@parser(63, instead=None, worst=("A", "A_", "-"))
def variable(written: str) -> str | None:
    """The name of an environment variable; None if it is none."""
    return written if _VARIABLE.fullmatch(written) else None


def of_pod(annotations: Mapping[str, object]) -> str | None:
    """The variable that the pod's annotation names; None without one."""
    written = annotations.get(names.GPU_VISIBLE)
    return variable(written) if isinstance(written, str) else None


def faults(annotations: Mapping[str, object], others: tuple[Share, ...]) -> list[ShareFault]:
    """`others`: what the pod asks for in other words than Gangline's annotations."""
    if names.GPU_VISIBLE not in annotations:
        return []
    said = ""
    if of_pod(annotations) is None:
        said = f"must be the name of an environment variable, such as {NVIDIA}"
    elif others:
        said = "the component that shares out what the pod requests names the pod's cards"
    elif names.GPU_CLASS in annotations:
        said = "the pod has a claim, which gives it its cards"
    elif not own.says_how_much(annotations):
        said = f"is for pods that say by {names.GPU_SHARE} or {names.GPU_MEMORY} what they use of cards"
    return [ShareFault(names.GPU_VISIBLE, annotations[names.GPU_VISIBLE], said)] if said else []


def exposed(template: dict[str, Any]) -> dict[str, Any]:
    """The pod template with the variable in its containers, if it asks for it. A container that sets it keeps what it has.

    What is no template of a pod is left to its own rules. The result shares all that stays as it is with the template, which is
    not changed.
    """
    name = of_pod(mapping(mapping(template.get("metadata")).get("annotations")))
    if name is None:
        return template
    value = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{names.CARDS}']"}}
    spec = mapping(template.get("spec"))
    added: dict[str, Any] = {}
    for kind in ("initContainers", "containers"):
        before = listing(spec.get(kind))
        after = [_exposed(container, name, value) for container in before]
        if any(new is not old for new, old in zip(after, before, strict=True)):
            added[kind] = after
    return {**template, "spec": {**spec, **added}} if added else template


def _exposed(container: Any, name: str, value: dict[str, Any]) -> Any:
    fields = mapping(container)
    written = listing(fields.get("env"))
    odd = fields.get("env") not in (None, written)
    if not fields or odd or any(mapping(row).get("name") == name for row in written):
        return container
    return {**fields, "env": [*written, {"name": name, "valueFrom": value}]}
