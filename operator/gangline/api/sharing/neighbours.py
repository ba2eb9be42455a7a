"""Names of shares, which say beside whom a pod sits on a card: annotations of the pod template, whoever shares the cards out.

`gangline.io/gpu-affinity: a` sits with others of that name if it can, `gangline.io/gpu-anti-affinity: a` never, and
`gangline.io/gpu-exclusion: a` with nobody else. Names are of one namespace: no name of another one is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from gangline.api import names
from gangline.api.label_syntax import is_value
from gangline.api.sharing.fault import ShareFault
from gangline.engine.model import Share

KEYS: Final = (names.GPU_AFFINITY, names.GPU_ANTI_AFFINITY, names.GPU_EXCLUSION)


def named(annotations: Mapping[str, object], shares: tuple[Share, ...]) -> tuple[Share, ...]:
    """The shares with the names that their pod gives them; a name that `faults` reports counts as none."""
    if not shares or not any(key in annotations for key in KEYS):
        return shares
    near, apart, only = (_name(annotations, key) for key in KEYS)
    return tuple(replace(each, affinity=near, anti_affinity=apart, exclusion=only) for each in shares)


def within(namespace: str, shares: tuple[Share, ...]) -> tuple[Share, ...]:
    """The same with names that no other namespace has."""
    return tuple(_within(namespace, each) if each.names else each for each in shares)


def of_pod(annotations: Mapping[str, object], namespace: str) -> tuple[str, ...]:
    """The names of a pod as its neighbours see them, whatever it asks of cards."""
    return tuple(name for share in within(namespace, named(annotations, (Share(),))) for name in share.names)


def faults(annotations: Mapping[str, object]) -> list[ShareFault]:
    wanted = "must be a name as values of labels are: at most 63 letters, digits, '-', '_' and '.'"
    return [
        ShareFault(key, annotations[key], wanted) for key in KEYS if key in annotations and not _name(annotations, key)
    ]


def _within(namespace: str, share: Share) -> Share:
    near, apart, only = (
        f"{namespace}/{name}" if name else "" for name in (share.affinity, share.anti_affinity, share.exclusion)
    )
    return replace(share, affinity=near, anti_affinity=apart, exclusion=only)


def _name(annotations: Mapping[str, object], key: str) -> str:
    value = annotations.get(key)
    return value if isinstance(value, str) and is_value(value) else ""
