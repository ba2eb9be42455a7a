"""The shape of a topology: which domains there are, level by level, and which domain contains which.

A domain is a pair (level, position). Positions of a level are numbered in path order: the order of the level values from the
top down, compared value by value as strings. So the children of a domain are neighbours, a leaf's position decides ties, and
counting over a subtree is a sum over a slice of a list. A tree never changes; when a leaf comes or goes, a new one is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Path: TypeAlias = tuple[str, ...]


class TopologyTree:
    """Domains of every level, built from the paths of the leaves (which must be distinct and `depth` long)."""

    __slots__ = ("_starts", "depth", "lowest", "parents", "paths")

    def __init__(self, depth: int, leaf_paths: Iterable[Path]) -> None:
        self.depth = depth
        self.lowest = depth - 1
        #: per level: the path of each domain, and the position of its parent in the level above.
        self.paths: list[list[Path]] = [[] for _ in range(depth)]
        self.parents: list[list[int]] = [[] for _ in range(depth)]
        #: per level: position of the first child of each domain, and one more entry: the number of children in all.
        self._starts: list[list[int]] = [[] for _ in range(depth)]
        self.paths[self.lowest] = sorted(leaf_paths)
        for level in range(self.lowest, 0, -1):
            self._gather_parents(level)

    def _gather_parents(self, level: int) -> None:
        above, parents, starts = self.paths[level - 1], self.parents[level], self._starts[level - 1]
        for position, path in enumerate(self.paths[level]):
            prefix = path[:-1]
            if not above or above[-1] != prefix:
                above.append(prefix)
                starts.append(position)
            parents.append(len(above) - 1)
        starts.append(len(self.paths[level]))

    def size(self, level: int) -> int:
        return len(self.paths[level])

    def children(self, level: int, position: int) -> range:
        """Positions, one level down, of the domains inside this one."""
        starts = self._starts[level]
        return range(starts[position], starts[position + 1])

    def children_of_all(self, level: int, positions: Iterable[int]) -> list[int]:
        """Positions, one level down and in path order, of the domains inside any of these."""
        starts = self._starts[level]
        found: list[int] = []
        for position in sorted(positions):
            found.extend(range(starts[position], starts[position + 1]))
        return found

    def leaves(self, level: int, position: int) -> range:
        """Positions of all leaves below a domain."""
        first, end = position, position + 1
        for step in range(level, self.lowest):
            starts = self._starts[step]
            first, end = starts[first], starts[end]
        return range(first, end)

    def ancestor(self, leaf: int, level: int) -> int:
        """Position, at `level`, of the domain that a leaf lies in."""
        position = leaf
        for step in range(self.lowest, level, -1):
            position = self.parents[step][position]
        return position


def level_index(levels: Sequence[str], key: str) -> int | None:
    """The index of a node label key among the levels, None if the topology has no such level."""
    return levels.index(key) if key in levels else None
