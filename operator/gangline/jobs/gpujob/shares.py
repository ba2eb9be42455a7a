"""Parts of GPUs for the pods of a role, in the words of those who share GPUs out."""

from __future__ import annotations

from typing import Final

from gangline import bounded
from gangline.api.label_syntax import is_value
from gangline.api.names import (
    GPU_AFFINITY,
    GPU_ANTI_AFFINITY,
    GPU_CLASS,
    GPU_COMPUTE,
    GPU_COUNT,
    GPU_EXCLUSION,
    GPU_MEMORY,
    GPU_SHARE,
    GPU_VISIBLE,
    HAMI_CORES,
    HAMI_GPU,
    HAMI_MEMORY,
    HAMI_PERCENT,
    KAI_DEVICES,
    KAI_FRACTION,
    KAI_MEMORY,
)
from gangline.api.sharing import numbers, share_annotations
from gangline.jobs.base import JobError, Json

HAMI: Final = "HAMi"
KAI: Final = "KAI"
DRA: Final = "DRA"
OTHERS: Final = "Annotations"
VISIBLE: Final = "VisibleDevices"
_ANNOTATIONS: Final = (KAI_FRACTION, KAI_DEVICES, KAI_MEMORY, *share_annotations.SHARE_KEYS)
#: field of a share -> the annotation of its pods that is its name
_NAMES: Final = {"affinity": GPU_AFFINITY, "antiAffinity": GPU_ANTI_AFFINITY, "exclusion": GPU_EXCLUSION}


def ask_for_shares(template: Json, gpus: int, share: Json, path: str, resource: str, *, asks: bool) -> None:
    """Let a pod ask for a part of each of `gpus` GPUs, in place of whole ones. `path` is that of the share; `asks`: the template
    requests GPUs itself. Raises JobError.
    """
    by, percent = share.get("by"), share.get("percent")
    if not isinstance(percent, int) or not 1 <= percent <= 99:
        raise JobError("must be a whole number from 1 to 99", f"{path}.percent")
    memory = share.get("memory")
    mebibytes = None if memory is None else numbers.memory(str(memory))
    if memory is not None and mebibytes is None:
        raise JobError("must be memory of a card, such as 8Gi", f"{path}.memory")
    if by == KAI and memory is not None:
        raise JobError("KAI divides memory as it divides the compute power", f"{path}.memory")
    if by == DRA:
        _check_claim(template, gpus, share, path)
    elif (
        field := next((field for field in ("deviceClass", "compute") if share.get(field) is not None), None)
    ) is not None:
        raise JobError(f"belongs to a claim, and {bounded.shown(by)} makes none", f"{path}.{field}")
    if by in (HAMI, KAI, DRA) and GPU_VISIBLE in ((template.get("metadata") or {}).get("annotations") or {}):
        raise JobError(f"{by} chooses the cards of pods, and the template has {GPU_VISIBLE}", f"{path}.by")
    if resource != HAMI_GPU and by not in (DRA, OTHERS, VISIBLE):
        raise JobError(f"{by} shares {HAMI_GPU} out, not {bounded.shown(resource)}", path)
    if asks or _asks_for_parts(template):
        raise JobError("the template asks for GPUs itself", path)
    if gpus < 1:
        raise JobError("there is no GPU to share: give their number", path)
    if by == KAI:
        annotations = _annotations(template)
        annotations[KAI_FRACTION] = f"0.{percent:02}"
        if gpus > 1:
            annotations[KAI_DEVICES] = str(gpus)
    elif by == HAMI:
        bound = {HAMI_PERCENT: percent} if mebibytes is None else {HAMI_MEMORY: mebibytes}
        add_requests(template, {HAMI_GPU: gpus, HAMI_CORES: percent, **bound})
    elif by in (DRA, OTHERS, VISIBLE):
        annotations = _annotations(template)
        annotations[GPU_SHARE] = f"{percent * 10}m"
        if mebibytes is not None:
            annotations[GPU_MEMORY] = f"{mebibytes}Mi"
        if gpus > 1:
            annotations[GPU_COUNT] = str(gpus)
        if by == DRA:
            annotations[GPU_CLASS] = share["deviceClass"]
            annotations |= {GPU_COMPUTE: share["compute"]} if share.get("compute") else {}
        if by == VISIBLE:
            annotations.setdefault(GPU_VISIBLE, share_annotations.NVIDIA)
    else:
        raise JobError(f"must be {HAMI}, {KAI}, {DRA}, {VISIBLE} or {OTHERS}", f"{path}.by")
    _name(template, share, path)


def _check_claim(template: Json, gpus: int, share: Json, path: str) -> None:
    """Check that a ResourceClaim can ask for the share. Raises JobError if none could."""
    if share_annotations.device_class(str(share.get("deviceClass") or "")) is None:
        raise JobError("must be the name of a DeviceClass", f"{path}.deviceClass")
    if share.get("memory") is None:
        raise JobError("is required: a claim that does not say takes all memory of the card", f"{path}.memory")
    if share.get("compute") is not None and share_annotations.compute(str(share["compute"])) is None:
        said = "must be milli or cores, with the domain of its driver if it has one"
        raise JobError(said, f"{path}.compute")
    if gpus > share_annotations.MOST_CARDS:
        raise JobError(f"a claim has at most {share_annotations.MOST_CARDS} GPUs", path)
    if any(row.get("name") == share_annotations.CLAIM for row in template["spec"].get("resourceClaims") or ()):
        raise JobError(f"the template has a claim {share_annotations.CLAIM} of its own", path)


def _name(template: Json, share: Json, path: str) -> None:
    for field, key in _NAMES.items():
        name = share.get(field)
        if name is None:
            continue
        if not isinstance(name, str) or not name or not is_value(name):
            raise JobError("must be a name as values of labels are, at most 63 characters", f"{path}.{field}")
        annotations = _annotations(template)
        if annotations.setdefault(key, name) != name:
            raise JobError(f"the template says {bounded.shown(annotations[key])} itself", f"{path}.{field}")


def _annotations(template: Json) -> Json:
    """The annotations of the template, to be added to."""
    metadata = template["metadata"] = template.get("metadata") or {}
    metadata["annotations"] = metadata.get("annotations") or {}
    return metadata["annotations"]


def _asks_for_parts(template: Json) -> bool:
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    resources = [container.get("resources") or {} for container in template["spec"]["containers"]]
    asked = {name for each in resources for part in ("requests", "limits") for name in each.get(part) or ()}
    return any(name in annotations for name in _ANNOTATIONS) or not asked.isdisjoint(
        (HAMI_CORES, HAMI_PERCENT, HAMI_MEMORY)
    )


def add_requests(template: Json, amounts: dict[str, int]) -> None:
    """Add requests, with equal limits, to the first container."""
    first = template["spec"]["containers"][0]
    resources = first["resources"] = dict(first.get("resources") or {})
    for part in ("requests", "limits"):
        resources[part] = {**(resources.get(part) or {}), **{name: str(amount) for name, amount in amounts.items()}}
