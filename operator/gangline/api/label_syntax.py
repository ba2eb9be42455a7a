"""The syntax of labels: whether a text is a label's key or value."""

from __future__ import annotations

import re
from typing import Final

from gangline import bounded

_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_KEY: Final = re.compile(rf"({_DOMAIN}/)?{_NAME}")
_VALUE: Final = re.compile(rf"({_NAME})?")
#: characters of the longest key: a domain, a slash and a name
_LONGEST: Final = 253 + 1 + 63


@bounded.parser(_LONGEST, instead=False, worst=("a.", "a-", "a/", "."))
def is_key(text: str) -> bool:
    """Whether it is a label's key, `[domain/]name`."""
    return len(text.rpartition("/")[0]) <= 253 and _KEY.fullmatch(text) is not None


@bounded.parser(_LONGEST, instead=False, worst=("a.", "a-", "."))
def is_value(text: str) -> bool:
    return _VALUE.fullmatch(text) is not None
