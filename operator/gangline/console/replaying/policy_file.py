"""Policies of a replay from a file of QueuePolicies: the same objects that a cluster takes.

A replay has neither priorities nor failing nodes nor pods, so parts about these say nothing in it; each is named in a note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from gangline import bounded
from gangline.api.admission import syntax
from gangline.api.read import policy_reader
from gangline.api.read.reading import ParseError
from gangline.replay.policies import POLICIES, Policy
from gangline.replay.replayed import ReplayError

#: characters of a file, and policies in it
LONGEST: Final = 200_000
MOST: Final = 50
#: the parts that a replay plays
_PLAYED: Final = frozenset({"clusterQueues", "precedence", "profile", "order", "backfill", "floor"})


class _Loader(yaml.SafeLoader):
    """A safe loader without aliases, by which a short file could become a huge value."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


def read(text: str, file: str) -> tuple[list[Policy], list[str]]:
    """The QueuePolicies of a file, and notes about what of them a replay does not play. Raises ReplayError."""
    if len(text) > LONGEST:
        raise ReplayError(f"{file} is longer than {LONGEST} characters")
    policies: list[Policy] = []
    notes: list[str] = []
    for document in _documents(text, file):
        policy = _policy(document, file)
        if policy.name in POLICIES or any(policy.name == other.name for other in policies):
            raise ReplayError(f"{file}: the name {policy.name} is taken; give the QueuePolicy another one")
        policies.append(policy)
        left_out = sorted(set(document["spec"]) - _PLAYED)
        notes += [f"{policy.name}: spec.{part} is not played in a replay" for part in left_out]
    if not policies:
        raise ReplayError(f"{file} has no QueuePolicy")
    return policies, notes


def _documents(text: str, file: str) -> Iterator[dict[str, Any]]:
    """The QueuePolicies; other objects are passed over."""
    try:
        documents: list[Any] = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ReplayError(f"{file} is not YAML: {error}") from None
    found = [each for each in documents if isinstance(each, dict) and each.get("kind") == "QueuePolicy"]
    if len(found) > MOST:
        raise ReplayError(f"{file} has more than {MOST} QueuePolicies")
    yield from found


def _policy(document: Mapping[str, Any], file: str) -> Policy:
    metadata, spec = document.get("metadata"), document.get("spec")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or syntax.dns_label_faults(name):
        raise ReplayError(f"{file}: metadata.name of a QueuePolicy is no name: {bounded.shown(name)}")
    if not isinstance(spec, dict):
        raise ReplayError(f"{file}: QueuePolicy {name}: spec must be an object")
    try:
        if unknown := policy_reader.unknown_fields(dict(document)):
            raise ReplayError(f"{file}: QueuePolicy {name}: {unknown[0]}: there is no such field")
        ordering, backfill = policy_reader.ordering(dict(document)), policy_reader.backfill(dict(document))
        floor = policy_reader.floor(dict(document))
    except ParseError as error:
        raise ReplayError(f"{file}: QueuePolicy {name}: {error}") from None
    told = f"QueuePolicy {name} of {file}"
    return Policy(name, told, ordering=ordering, backfill=backfill, floor=floor, document=document)
