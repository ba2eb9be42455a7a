"""The choice and order of a list's entries that are shown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from gangline.console.output import paths
from gangline.console.output.columns import Listing

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListSelection:
    """The filters and the order of a list. Names are as they were given; of each kind, one has to match. `sort`: names of columns
    or paths, `-` before it: descending.
    """

    users: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    sort: tuple[str, ...] = ()

    def of(self, listing: Listing[T], entries: Iterable[T], now: float) -> list[T]:
        """The entries that are wanted, in the order that is wanted. Raises click.UsageError for what does not exist."""
        for name in self.states if listing.states else ():
            if folded(name) not in map(folded, listing.states):
                raise click.UsageError(f"there is no state {name!r}: use {', '.join(listing.states)}")
        found = [entry for entry in entries if self._wants(listing, entry)]
        for order in reversed(self.sort):
            found = _sorted(listing, found, order, now)
        return found

    def _wants(self, listing: Listing[T], entry: T) -> bool:
        return (
            _any_of(self.users, listing.user, entry)
            and _any_of(self.queues, listing.queue, entry)
            and _any_of([*map(folded, self.states)], listing.state, entry, folded)
        )


def words(given: Sequence[str]) -> tuple[str, ...]:
    """Values of an option that may be repeated, each a list with commas."""
    return tuple(word.strip() for text in given for word in text.split(",") if word.strip())


def folded(name: str) -> str:
    """The name of a state for comparisons: `never-fits`, `NeverFits` and `Never fits` are the same state."""
    return "".join(filter(str.isalnum, name)).lower()


def _any_of(
    wanted: Collection[str],
    names: Callable[[T], Collection[str]] | None,
    entry: T,
    form: Callable[[str], str] = str,
) -> bool:
    return not wanted or names is None or not set(map(form, names(entry))).isdisjoint(wanted)


def _sorted(listing: Listing[T], entries: list[T], order: str, now: float) -> list[T]:
    """Sorted by one column, or one path into the entries' JSON; entries without a value are last."""
    down, name = order.startswith("-"), order.removeprefix("-")
    key = _key(listing, name, now)
    known = [(entry, value) for entry in entries if (value := key(entry)) not in (None, "")]
    rest = [entry for entry in entries if key(entry) in (None, "")]
    known.sort(key=lambda pair: _comparable(pair[1]), reverse=down)
    return [*(entry for entry, _ in known), *rest]


def _key(listing: Listing[T], name: str, now: float) -> Callable[[T], Any]:
    if name.startswith((".", "{", "[")):
        try:
            path = paths.path(name)
        except paths.PathError as error:
            raise click.UsageError(f"--sort: {error}") from error
        return lambda entry: next(iter(path.values(listing.as_json(entry))), None)
    column = next((column for column in listing.columns if folded(column.name) == folded(name)), None)
    if column is None:
        known = ", ".join(column.name.lower() for column in listing.columns)
        raise click.UsageError(f"there is no column {name!r} to sort by: use {known}, or a path such as .name")
    key = column.key or column.text
    return lambda entry: key(entry, now)


def _comparable(value: Any) -> tuple[int, Any]:
    """A key that sorts numbers before texts, so that values of both kinds are sorted too."""
    return (0, value) if isinstance(value, int | float) else (1, str(value))
