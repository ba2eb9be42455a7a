"""What a mistyped name may mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: names that are compared at most
_MOST: Final = 5000


def meant(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` with the known names whose last word is nearly this one; "" for none."""
    from difflib import get_close_matches
    from itertools import islice

    by_word = {each.rpartition(" ")[2]: each for each in reversed([*islice(known, _MOST)])}
    found = [by_word[word] for word in get_close_matches(name, by_word)]
    if not found:
        return ""
    return f" Did you mean {' or '.join(map(repr, found))}?"
