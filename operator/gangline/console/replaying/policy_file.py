"""Policies of a replay from a file of QueuePolicies: the same objects that a cluster takes.

A replay has neither priorities nor failing nodes nor pods, so parts about these say nothing in it; each is named in a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from gangline import bounded
from gangline.api.admission import syntax
from gangline.api.read import policy_reader
from gangline.api.read.reading import ParseError
from gangline.api.schedules import Span
from gangline.console.replaying import manifests
from gangline.replay.policies import POLICIES, Policy
from gangline.replay.replayed import ReplayError

#: the parts that a replay plays
_PLAYED: Final = frozenset({"clusterQueues", "precedence", "profile", "order", "backfill", "floor", "moves", "flavors"})


def read(text: str, file: str) -> tuple[list[Policy], list[str]]:
    """The QueuePolicies of a file, and notes about what of them a replay does not play. Raises ReplayError."""
    policies: list[Policy] = []
    notes: list[str] = []
    for document in manifests.of_kind(text, file, "QueuePolicy"):
        policy = _policy(document, file)
        if policy.name in POLICIES or any(policy.name == other.name for other in policies):
            raise ReplayError(f"{file}: the name {policy.name} is taken; give the QueuePolicy another one")
        policies.append(policy)
        left_out = sorted(set(document["spec"]) - _PLAYED)
        notes += [f"{policy.name}: spec.{part} is not played in a replay" for part in left_out]
    return policies, notes


def at_times(policy: Policy, known: Span) -> Policy:
    """The policy with the windows of its order over the time that a replay plays."""
    document = None if policy.document is None else dict(policy.document)
    if not policy_reader.orders_by_windows(document):
        return policy
    return replace(policy, ordering=policy_reader.ordering(document, known))


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
        floor, moves = policy_reader.floor(dict(document)), policy_reader.moves(dict(document))
        flavors = policy_reader.flavors(dict(document))
    except ParseError as error:
        raise ReplayError(f"{file}: QueuePolicy {name}: {error}") from None
    text = f"QueuePolicy {name} of {file}"
    return Policy(
        name,
        text,
        ordering=ordering,
        backfill=backfill,
        floor=floor,
        moves=moves,
        flavors=flavors,
        document=document,
    )
