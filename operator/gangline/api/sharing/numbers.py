"""Numbers in annotations about shares, bounded before they are read."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from gangline import bounded
from gangline.api import quantity
from gangline.bounded import parser

#: cards of one pod
MOST_CARDS: Final = 9999
_MIB: Final = 1 << 20
#: MiB of one card that is believed: 1 PiB
MOST_MEMORY: Final = 1 << 30
_FRACTION: Final = re.compile(r"[0-9]{0,3}(?:\.[0-9]{1,9})?")


@parser(32, instead=None, worst=("0.", "9"))
def fraction(written: str) -> Fraction | None:
    """A part of a GPU as a decimal number, above 0 and at most 1; None if it is none."""
    if not written or written == "." or _FRACTION.fullmatch(written) is None:
        return None
    found = Fraction(written)
    return found if 0 < found <= 1 else None


@parser(16, instead=None, worst=("9",))
def count(written: str) -> int | None:
    """A number of GPUs, from 0; None if it is none."""
    found = bounded.whole(written)
    return found if found is not None and found <= MOST_CARDS else None


@parser(16, instead=None, worst=("9",))
def mebibytes(written: str) -> int | None:
    """MiB without a unit, above 0; None if it is none."""
    found = bounded.whole(written)
    return found if found is not None and 0 < found <= MOST_MEMORY else None


@parser(32, instead=None, worst=("0.", "9", "9m"))
def part(written: str) -> Fraction | None:
    """A part of a card as a quantity (0.5, 500m), above 0 and at most 1; None if it is none."""
    found = _exact(written)
    return found if found is not None and 0 < found <= 1 else None


@parser(32, instead=None, worst=("0.", "9", "9Gi"))
def memory(written: str) -> int | None:
    """A quantity of bytes (8Gi) in MiB, rounded up; None if it is none."""
    found = _exact(written)
    if found is None or not 0 < found <= MOST_MEMORY * _MIB:
        return None
    return -(-found // _MIB)


def _exact(written: str) -> Fraction | None:
    try:
        return quantity.exact(written)
    except quantity.QuantityError:
        return None
