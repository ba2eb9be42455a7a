"""Bytes of a fuzzer as choices: each byte decides something, so that the fuzzer can change one decision at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """Takes the input from its front. Once it is used up every choice is the first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes that nothing was made of yet."""
        return len(self._data) - self._at

    def raw(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def byte(self) -> int:
        taken = self.raw(1)
        return taken[0] if taken else 0

    def below(self, end: int) -> int:
        """From 0 to `end` - 1, from one byte or, where that is not enough, two."""
        return (self.byte() if end <= 256 else self.byte() << 8 | self.byte()) % end

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def number(self) -> int:
        """Up to 64 bits, of which one sign."""
        return int.from_bytes(self.raw(1 + self.below(8)), "big", signed=True)

    def text(self) -> str:
        """Up to 255 bytes of UTF-8; what is none has become a replacement character."""
        return self.raw(self.byte()).decode(errors="replace")
