"""What the annotations of a pod template in Gangline's own words ask of cards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

from gangline.api import names
from gangline.api.label_syntax import is_value
from gangline.api.sharing import numbers
from gangline.api.unchecked import listing, mapping
from gangline.bounded import parser
from gangline.engine.model import Share
from gangline.engine.model.devices import WHOLE

# --- what contradicts itself in a request for shares of cards ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShareFault:
    """`key`: the annotation of the pod's template, `value`: what it says, `message`: why that cannot be."""

    key: str
    value: object
    message: str

    @property
    def field(self) -> str:
        """The path of the annotation within the template."""
        return f"metadata.annotations[{self.key}]"


# --- neighbours -------------------------------------------------------------------------------------------------------
#
# Names of shares, which say beside whom a pod sits on a card: annotations of the pod template, whoever shares the cards out.
#
# `gangline.io/gpu-affinity: a` sits with others of that name if it can, `gangline.io/gpu-anti-affinity: a` never, and
# `gangline.io/gpu-exclusion: a` with nobody else. Names are of one namespace: no name of another one is the same.


NEIGHBOUR_KEYS: Final = (names.GPU_AFFINITY, names.GPU_ANTI_AFFINITY, names.GPU_EXCLUSION)


def with_names(annotations: Mapping[str, object], shares: tuple[Share, ...]) -> tuple[Share, ...]:
    """The shares with the names that their pod gives them; a name that `neighbour_faults` reports counts as none."""
    if not shares or not any(key in annotations for key in NEIGHBOUR_KEYS):
        return shares
    near, apart, only = (_name(annotations, key) for key in NEIGHBOUR_KEYS)
    return tuple(replace(each, affinity=near, anti_affinity=apart, exclusion=only) for each in shares)


def within(namespace: str, shares: tuple[Share, ...]) -> tuple[Share, ...]:
    """The same with names that no other namespace has."""
    return tuple(_share_within(namespace, each) if each.names else each for each in shares)


def names_of_pod(annotations: Mapping[str, object], namespace: str) -> tuple[str, ...]:
    """The names of a pod as its neighbours see them, whatever it asks of cards."""
    return tuple(name for share in within(namespace, with_names(annotations, (Share(),))) for name in share.names)


def neighbour_faults(annotations: Mapping[str, object]) -> list[ShareFault]:
    wanted = "must be a name as values of labels are: at most 63 letters, digits, '-', '_' and '.'"
    return [
        ShareFault(key, annotations[key], wanted)
        for key in NEIGHBOUR_KEYS
        if key in annotations and not _name(annotations, key)
    ]


def _share_within(namespace: str, share: Share) -> Share:
    near, apart, only = (
        f"{namespace}/{name}" if name else "" for name in (share.affinity, share.anti_affinity, share.exclusion)
    )
    return replace(share, affinity=near, anti_affinity=apart, exclusion=only)


def _name(annotations: Mapping[str, object], key: str) -> str:
    value = annotations.get(key)
    return value if isinstance(value, str) and is_value(value) else ""


# --- card claims ------------------------------------------------------------------------------------------------------
#
# ResourceClaims of pods that say by annotations what part of cards they use, and of which DeviceClass: GPUJob's shares by DRA.
#
# Pods that wait for their place name a template that does not exist, `BY_OPERATOR`. The operator writes the claim of each of
# them, for the cards of its seat, before it lets the pod start (`control.nodes.gates`), and the controller of claims takes it:
# that looks for a claim which the pod owns before it makes one of a template. Other pods name a template with the same request.


#: the claim among those of a pod
CLAIM: Final = "gangline-gpu"
#: the template that pods name whose claims the operator writes
BY_OPERATOR: Final = "written-by-gangline"
#: cards of one pod: the API server allocates no more devices to a claim
MOST_CARDS: Final = 32

_DEFAULT_COMPUTE: Final = "milli"
_CLASS: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_COMPUTE: Final = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?/)?(?:milli|cores)")
#: names of cards that a selector can tell apart: a digest, or the path of a card without an uuid, is none
_UUID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,252}")
_OF_CARD: Final = '"uuid" in device.attributes[device.driver] && device.attributes[device.driver].uuid == "{}"'


@parser(253, instead=None, worst=("a", "a.", "-"))
def device_class(written: str) -> str | None:
    """The name of a DeviceClass; None if it is none."""
    return written if _CLASS.fullmatch(written) else None


@parser(69, instead=None, worst=("a", "a.", "-"))
def compute(written: str) -> str | None:
    """The capacity in which a driver counts compute; None if it cannot be one."""
    return written if _COMPUTE.fullmatch(written) else None


def spec(annotations: Mapping[str, object], cards: Sequence[str] = ()) -> dict[str, Any] | None:
    """`spec` of the claim of a pod with these annotations: for just these cards, if they are as many as it asks for, and each can
    be named. None where the annotations ask for no claim.
    """
    text = {key: value for key, value in annotations.items() if isinstance(value, str)}
    name, part = device_class(text.get(names.GPU_CLASS, "")), numbers.part(text.get(names.GPU_SHARE, ""))
    memory = numbers.memory(text.get(names.GPU_MEMORY, ""))
    counted = compute(text.get(names.GPU_COMPUTE, _DEFAULT_COMPUTE))
    count = numbers.count(text.get(names.GPU_COUNT, "1"))
    if name is None or part is None or memory is None or counted is None or not count or count > MOST_CARDS:
        return None
    domain, slash, unit = counted.rpartition("/")
    amount = ceil((WHOLE if unit == "milli" else 100) * part)
    exactly = {
        "deviceClassName": name,
        "capacity": {"requests": {counted: str(amount), f"{domain}{slash}memory": f"{memory}Mi"}},
    }
    if len(cards) != count or not all(map(_UUID.fullmatch, cards)):
        return {"devices": {"requests": [{"name": "gpu", "exactly": {**exactly, "count": count}}]}}
    chosen = [[{"cel": {"expression": _OF_CARD.format(card)}}] for card in cards]
    rows = [{"name": f"gpu-{i}", "exactly": {**exactly, "selectors": each}} for i, each in enumerate(chosen)]
    return {"devices": {"requests": rows}}


# --- gangline's own words, for pods of every kind of job: annotations of the pod template -----------------------------
#
# `gangline.io/gpu-share: 500m` and `gangline.io/gpu-memory: 8Gi` ask for that much of each of `gangline.io/gpu-count` cards
# (one). With memory alone, compute is the same part of the card as its memory. With `gangline.io/gpu-device-class` a claim of
# that class gives the pod its share. A pod that requests cards as well may only say how much memory it needs of each. What
# cannot be read, or contradicts what else the pod asks for, is refused.


SHARE_KEYS: Final = (names.GPU_SHARE, names.GPU_MEMORY, names.GPU_COUNT, names.GPU_CLASS, names.GPU_COMPUTE)


def asks_for_share(annotations: Mapping[str, object]) -> bool:
    return any(key in annotations for key in SHARE_KEYS)


def own_shares(annotations: Mapping[str, object], others: tuple[Share, ...]) -> tuple[Share, ...]:
    """All shares of a pod, of which `others` are asked for in other words than ours. An annotation that `share_faults` reports
    asks for whole cards.
    """
    if not asks_for_share(annotations):
        return others
    memory = numbers.memory(_text(annotations, names.GPU_MEMORY)) or 0
    if others:
        return tuple(replace(each, memory=max(each.memory, memory)) if each.unit else each for each in others)
    count = numbers.count(_text(annotations, names.GPU_COUNT)) or 1
    part = numbers.part(_text(annotations, names.GPU_SHARE))
    if part is None:
        if memory and names.GPU_SHARE not in annotations:
            return (Share(count=count, memory=memory, by_memory=True),)
        return (Share(count=count, exclusive=True, memory_milli=WHOLE),)
    milli = ceil(WHOLE * part)
    if names.GPU_CLASS in annotations:
        return (Share(count=count, milli=milli, memory=memory, mode="Claim"),)
    return (Share(count=count, milli=milli, memory=memory, memory_milli=0 if memory else milli),)


def share_faults(annotations: Mapping[str, object], others: tuple[Share, ...]) -> list[ShareFault]:
    found: list[ShareFault] = []
    for key, read, wanted in (
        (names.GPU_SHARE, numbers.part, "must be a part of a card above 0 and at most 1, such as 0.5 or 500m"),
        (names.GPU_MEMORY, numbers.memory, "must be memory of a card, such as 8Gi"),
        (names.GPU_COUNT, _cards, f"must be a number of cards from 1 to {numbers.MOST_CARDS}"),
        (names.GPU_CLASS, device_class, "must be the name of a DeviceClass"),
        (names.GPU_COMPUTE, compute, "must be milli or cores, with the domain of its driver if it has one"),
    ):
        if key in annotations and read(_text(annotations, key)) is None:
            found.append(ShareFault(key, annotations[key], wanted))
    if others and names.GPU_SHARE in annotations:
        said = "the pod asks for cards in other words, too: by its requests, or by annotations of others"
        found.append(ShareFault(names.GPU_SHARE, annotations[names.GPU_SHARE], said))
    if others and names.GPU_MEMORY in annotations and not all(each.unit for each in others):
        said = "the pod says in other words, too, how much memory it uses"
        found.append(ShareFault(names.GPU_MEMORY, annotations[names.GPU_MEMORY], said))
    if names.GPU_COUNT in annotations and (others or not says_how_much(annotations)):
        said = f"is the number of cards of which {names.GPU_SHARE} or {names.GPU_MEMORY} says how much of each"
        found.append(ShareFault(names.GPU_COUNT, annotations[names.GPU_COUNT], said))
    if names.GPU_CLASS in annotations and not (names.GPU_SHARE in annotations and names.GPU_MEMORY in annotations):
        said = f"is of a claim for what {names.GPU_SHARE} and {names.GPU_MEMORY} say"
        found.append(ShareFault(names.GPU_CLASS, annotations[names.GPU_CLASS], said))
    if names.GPU_COMPUTE in annotations and names.GPU_CLASS not in annotations:
        said = f"is of the claim whose class {names.GPU_CLASS} names"
        found.append(ShareFault(names.GPU_COMPUTE, annotations[names.GPU_COMPUTE], said))
    return found


def says_how_much(annotations: Mapping[str, object]) -> bool:
    return names.GPU_SHARE in annotations or names.GPU_MEMORY in annotations


def _cards(written: str) -> int | None:
    return numbers.count(written) or None


def _text(annotations: Mapping[str, object], key: str) -> str:
    value = annotations.get(key)
    return value if isinstance(value, str) else ""


# --- visible ----------------------------------------------------------------------------------------------------------
#
# Cards by an environment variable, for runtimes that trust it: `gangline.io/gpu-visible-devices: NVIDIA_VISIBLE_DEVICES`.
#
# Each container gets the variable, whose value is the pod's annotation `gangline.io/cards`. The kubelet reads that when the
# container starts, after the cards have been chosen. Where none were, the value is empty, which for NVIDIA's runtime is no
# card.


#: of NVIDIA's container runtime
NVIDIA: Final = "NVIDIA_VISIBLE_DEVICES"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@parser(63, instead=None, worst=("A", "A_", "-"))
def variable(written: str) -> str | None:
    """The name of an environment variable; None if it is none."""
    return written if _VARIABLE.fullmatch(written) else None


def card_variable(annotations: Mapping[str, object]) -> str | None:
    """The variable that the pod's annotation names; None without one."""
    written = annotations.get(names.GPU_VISIBLE)
    return variable(written) if isinstance(written, str) else None


def variable_faults(annotations: Mapping[str, object], others: tuple[Share, ...]) -> list[ShareFault]:
    """`others`: what the pod asks for in other words than Gangline's annotations."""
    if names.GPU_VISIBLE not in annotations:
        return []
    said = ""
    if card_variable(annotations) is None:
        said = f"must be the name of an environment variable, such as {NVIDIA}"
    elif others:
        said = "the component that shares out what the pod requests names the pod's cards"
    elif names.GPU_CLASS in annotations:
        said = "the pod has a claim, which gives it its cards"
    elif not says_how_much(annotations):
        said = f"is for pods that say by {names.GPU_SHARE} or {names.GPU_MEMORY} what they use of cards"
    return [ShareFault(names.GPU_VISIBLE, annotations[names.GPU_VISIBLE], said)] if said else []


def with_variable(template: dict[str, Any]) -> dict[str, Any]:
    """The pod template with the variable in its containers, if it asks for it. A container that sets it keeps what it has.

    What is no template of a pod is left to its own rules. The result shares all that stays as it is with the template, which is
    not changed.
    """
    name = card_variable(mapping(mapping(template.get("metadata")).get("annotations")))
    if name is None:
        return template
    value = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{names.CARDS}']"}}
    spec = mapping(template.get("spec"))
    added: dict[str, Any] = {}
    for kind in ("initContainers", "containers"):
        before = listing(spec.get(kind))
        after = [_container_with_variable(container, name, value) for container in before]
        if any(new is not old for new, old in zip(after, before, strict=True)):
            added[kind] = after
    return {**template, "spec": {**spec, **added}} if added else template


def _container_with_variable(container: Any, name: str, value: dict[str, Any]) -> Any:
    fields = mapping(container)
    written = listing(fields.get("env"))
    odd = fields.get("env") not in (None, written)
    if not fields or odd or any(mapping(row).get("name") == name for row in written):
        return container
    return {**fields, "env": [*written, {"name": name, "valueFrom": value}]}
