"""The smallest sufficient set of candidates: an exact search where it is cheap, given up where it is not.

Sets are tried by size, and those of one size in the order of the candidates. The amount that each candidate frees bounds the
search: where one resource is missing and every candidate's amount counts in full, the first set that is tried is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from heapq import heappushpop
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

#: Number of candidates taken before the search is given up.
STEPS = 400
#: Sets larger than this are not searched for.
LARGEST = 64


class FewestSearch(Generic[K]):
    """`take` takes a candidate by its index and returns whether it may be taken (if not, nothing is taken).

    `give_back` undoes the last `take`; `enough` says whether the taken ones suffice: once they do, they do with more taken.
    `frees` is an upper bound of what each candidate frees of each resource of `lacking`.
    """

    def __init__(
        self,
        frees: Sequence[Mapping[K, int]],
        lacking: Mapping[K, int],
        take: Callable[[int], bool],
        give_back: Callable[[int], None],
        enough: Callable[[], bool],
    ) -> None:
        self._frees = frees
        self._lacking = {key: amount for key, amount in lacking.items() if amount > 0}
        self._take = take
        self._give_back = give_back
        self._enough = enough
        self._steps = 0
        #: there may be a smaller set than the one found
        self.gave_up = False
        #: (key, size) -> for every index, the most that so many candidates from there on free of it
        self._most: dict[tuple[K, int], list[int]] = {}

    def below(self, limit: int) -> list[int] | None:
        """The indices of the first smallest set of fewer than `limit` candidates; None if there is none, or it was not found.

        Nothing is taken afterwards.
        """
        for size in range(1, min(limit, LARGEST + 1)):
            if self._could(0, size, self._lacking):
                found = self._search(0, size, self._lacking)
                self.gave_up = found is None and self._steps > STEPS
                if found is not None or self.gave_up:
                    return found
        self.gave_up = limit > LARGEST + 1
        return None

    def _search(self, start: int, size: int, lacking: Mapping[K, int]) -> list[int] | None:
        """Find `size` candidates from `start` on, in order."""
        for place in range(start, len(self._frees) - size + 1):
            if not self._could(place, size, lacking):
                return None
            frees = self._frees[place]
            rest = {key: amount - frees.get(key, 0) for key, amount in lacking.items()}
            if not self._could(place + 1, size - 1, rest):
                continue
            self._steps += 1
            if self._steps > STEPS:
                return None
            if not self._take(place):
                continue
            try:
                if size == 1:
                    if self._enough():
                        return [place]
                elif (others := self._search(place + 1, size - 1, rest)) is not None:
                    return [place, *others]
            finally:
                self._give_back(place)
        return None

    def _could(self, start: int, size: int, lacking: Mapping[K, int]) -> bool:
        return all(amount <= 0 or self._most_of(key, size)[start] >= amount for key, amount in lacking.items())

    def _most_of(self, key: K, size: int) -> list[int]:
        """The most that `size` candidates from an index on free, for every index up to the end; -1 = there are not as many."""
        known = self._most.get((key, size))
        if known is None:
            known = self._most[key, size] = [0] * (len(self._frees) + 1) if size == 0 else self._sums(key, size)
        return known

    def _sums(self, key: K, size: int) -> list[int]:
        sums = [-1] * (len(self._frees) + 1)
        largest: list[int] = []
        total = 0
        for place in range(len(self._frees) - 1, -1, -1):
            amount = self._frees[place].get(key, 0)
            if len(largest) < size:
                largest.append(amount)
                total += amount
                if len(largest) == size:
                    largest.sort()
            else:
                total += amount - heappushpop(largest, amount)
            if len(largest) == size:
                sums[place] = total
        return sums
