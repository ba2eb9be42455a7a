"""Which version of an object is the newest while a write of ours is under way.

A write's answer and the watch's echo of it come over different connections, in any order, and foreign changes come between.
resourceVersions may only be compared for equality, which is enough: an answer that the watch has shown already is not newer
than what the watch showed last; one that it has not shown is newer than all that it showed.

An object is *in doubt* while the engine assumes something of it that is not written yet (a reservation, an eviction). What the
watch shows of it meanwhile is held back, so that the engine never takes an old version for the loss of what it assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gangline.kube.resources import ObjectKey

Json: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class _Track:
    writes: int = 0
    doubts: int = 0
    seen: set[str] = field(default_factory=set[str])
    held: Json | None = None
    #: the watch has shown a version, or the end, of the object since the first of these writes began
    news: bool = False


@dataclass(slots=True)
class Tracking:
    _tracks: dict[ObjectKey, _Track] = field(default_factory=dict[ObjectKey, _Track])

    def begin(self, key: ObjectKey, *, base: str, doubt: bool) -> None:
        """A write is on its way; `base` is the resourceVersion last seen ("" = none)."""
        track = self._tracks.setdefault(key, _Track())
        track.writes += 1
        track.doubts += doubt
        track.seen.add(base)  # a write that changes nothing answers the version it found

    def in_doubt(self, key: ObjectKey) -> bool:
        track = self._tracks.get(key)
        return track is not None and track.doubts > 0

    def seen(self, key: ObjectKey, obj: Json) -> bool:
        """The watch shows `obj`. True when it may be taken now, False when it is held back."""
        track = self._tracks.get(key)
        if track is None:
            return True
        track.seen.add(obj["metadata"]["resourceVersion"])
        track.news = True
        if track.doubts:
            track.held = obj
            return False
        return True

    def gone(self, key: ObjectKey) -> None:
        """The watch shows that the object is no more: nothing held of it matters."""
        track = self._tracks.get(key)
        if track is not None:
            track.held = None
            track.news = True

    def has_news(self, key: ObjectKey) -> bool:
        """The watch has shown something newer than what the writes under way were based on."""
        track = self._tracks.get(key)
        return track is not None and track.news

    def end(self, key: ObjectKey, answer: Json | None, *, doubt: bool) -> Json | None:
        """A write is resolved with the object it answered (None: no news). Returns the version to take now, if any."""
        track = self._tracks[key]
        track.writes -= 1
        track.doubts -= doubt
        newest: Json | None = None
        if answer is not None and answer["metadata"]["resourceVersion"] not in track.seen:
            track.held = None
            newest = answer
        if not track.doubts and track.held is not None:
            newest, track.held = track.held, None
        if not track.writes:
            del self._tracks[key]
        return newest
