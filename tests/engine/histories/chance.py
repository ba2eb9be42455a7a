"""Chance that follows from a seed alone, the same in every version of Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any


class Chance:
    """Draws from `random`, of which only `random()` is promised to stay as it is."""

    random: random.Random

    def one_of(self, those: Sequence[Any]) -> Any:
        return those[int(self.random.random() * len(those))]

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def between(self, least: int, most: int) -> int:
        return least + int(self.random.random() * (most - least + 1))
