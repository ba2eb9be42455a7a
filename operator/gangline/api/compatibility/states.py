"""What a part of Kueue's API does in Gangline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Support:
    """What a part of Kueue's API does here: `does` is as in Kueue, otherwise, or nothing. `words` say how it differs, or what
    holds without it.
    """

    does: Literal["works", "differs", "no"]
    words: str = ""


def works(words: str) -> Support:
    """The state of what works as in Kueue; the words say what that is where it may surprise."""
    return Support("works", words)


def differs(words: str) -> Support:
    """The state of what has another effect than in Kueue, or another place; the words say which."""
    return Support("differs", words)


def no(words: str) -> Support:
    """The state of what has no effect; the words say what holds instead."""
    return Support("no", words)


#: as in Kueue
WORKS: Final = Support("works")

#: path of a field -> what it does
Fields: TypeAlias = Mapping[str, Support]
