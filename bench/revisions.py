"""Follows every revision of what quota is about, in the order of the API server's store, and hands it to a `Proof`.

Each kind is listed once and then watched from that resourceVersion on; a stream that breaks goes on where it broke. Revisions of
several kinds are put in order by their number, so each waits until all streams have come as far. Where the server remembers less
than a stream has missed (410 Gone, after a restart) there is a gap: it is counted, and only what it left is checked. All is read
with the official client.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from bench.evidence import READERS, Revision
from bench.official import BOOKMARK, Kind, OfficialClient, ReadError, key
from bench.proof import Proof

#: seconds before a stream that broke is opened again
PAUSE = 0.2


@dataclass
class Stream:
    """One kind: where it stands, and the revision of every object that is known."""

    kind: Kind
    #: it has seen everything up to here
    number: int = 0
    known: dict[str, int] = field(default_factory=dict[str, int])


@dataclass
class Revisions:
    """`proof` takes what has been seen of all kinds."""

    client: OfficialClient
    proof: Proof = field(default_factory=Proof)
    gaps: int = 0
    _streams: list[Stream] = field(default_factory=list)
    _waiting: list[tuple[int, int, Revision]] = field(default_factory=list)
    _order: itertools.count[int] = field(default_factory=itertools.count)
    #: from this revision on everything has been seen
    _since: int = 0
    #: what happened in a gap has not been looked at yet
    _missed: bool = False

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, client: OfficialClient, *kinds: Kind) -> AsyncIterator[Revisions]:
        """From now on, of these kinds; none: of all."""
        found = cls(client)
        found._streams = [Stream(kind) for kind in kinds or READERS]
        for stream in found._streams:
            await found._list(stream)
        tasks = [asyncio.ensure_future(found._follow(stream)) for stream in found._streams]
        try:
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def settle(self, seconds: float = 30.0) -> Proof:
        """Wait until all that happened before this call has been taken."""
        deadline = time.monotonic() + seconds
        while not await self._complete():
            if time.monotonic() > deadline:
                raise TimeoutError(f"what the API server lists was not all seen in {seconds:g} s")
            await asyncio.sleep(PAUSE)
        self._hand_over(max(stream.number for stream in self._streams))
        return self.proof

    async def _complete(self) -> bool:
        for stream in self._streams:
            listing = await self.client.list(stream.kind)
            if {key(obj): int(obj["metadata"]["resourceVersion"]) for obj in listing.items} != stream.known:
                return False
            stream.number = max(stream.number, int(listing.version))
        return True

    # --- one kind -----------------------------------------------------------------------------------------------------

    async def _follow(self, stream: Stream) -> None:
        while True:
            try:
                await self._watch(stream)
            except ReadError as error:
                if not error.gone:
                    await asyncio.sleep(PAUSE)
                    continue
                self.gaps += 1
                self._missed = True
                with contextlib.suppress(ReadError):
                    await self._list(stream)

    async def _list(self, stream: Stream) -> None:
        """All there is, unchecked."""
        listing = await self.client.list(stream.kind)
        number = int(listing.version)
        found = {key(obj): obj for obj in listing.items}
        for name in [name for name in stream.known if name not in found]:
            self._put(Revision(number, stream.kind, name, None, time.monotonic(), gone=True))
            del stream.known[name]
        for name, obj in found.items():
            version = int(obj["metadata"]["resourceVersion"])
            if stream.known.get(name) != version:
                stream.known[name] = version
                self._put(Revision.of(stream.kind, obj, at=time.monotonic()))
        stream.number = number
        self._since = max(self._since, number)

    async def _watch(self, stream: Stream) -> None:
        async for event in self.client.watch(stream.kind, str(stream.number)):
            number = int(event.object["metadata"]["resourceVersion"])
            if event.type != BOOKMARK:
                name, gone = key(event.object), event.type == "DELETED"
                self._put(Revision.of(stream.kind, event.object, gone=gone, at=time.monotonic()))
                if gone:
                    stream.known.pop(name, None)
                else:
                    stream.known[name] = number
            stream.number = number
            self._hand_over(min(each.number for each in self._streams))

    # --- in order -----------------------------------------------------------------------------------------------------

    def _put(self, revision: Revision) -> None:
        heapq.heappush(self._waiting, (revision.number, next(self._order), revision))

    def _hand_over(self, upto: int) -> None:
        while self._waiting and self._waiting[0][0] <= upto:
            number, _, revision = heapq.heappop(self._waiting)
            self._look_back(number)
            self.proof.take(revision, check=number > self._since)
        self._look_back(upto)

    def _look_back(self, number: int) -> None:
        """All of a gap has been handed over: check what it left."""
        if self._missed and number > self._since:
            self._missed = False
            self.proof.check_all(number)
