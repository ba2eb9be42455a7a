"""Determines the newest version of an object while answers to writes and watch events overtake each other.

A write's answer and the watch event of it come over different connections, in any order, with foreign changes in between.
Versions of one object are ordered (`gangline.kube.resources.revision`). A watch event is outdated if an answer has brought a
newer version, even long after the write: two writes may be answered before the watch shows the first of them.

An object is *in doubt* while the engine assumes something about it that is not written yet (a reservation, an eviction). Watch
events of it are held back meanwhile, so that the engine never takes an old version for the loss of what it assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gangline.kube.resources import ObjectKey
from gangline.objects import Stored


@dataclass(slots=True)
class _Track:
    """The writes of one object that are in flight, and what the watch has shown of it meanwhile."""

    writes: int = 0
    doubts: int = 0
    #: newest version that the watch has shown, or that was known when the first of these writes began
    shown: int = 0
    held: Stored | None = None
    #: uid of the object whose deletion the watch has shown since then
    gone: str = ""


@dataclass(slots=True)
class Tracking:
    """The newest versions of all objects with writes in flight, or with answers that the watch has not shown yet."""

    _tracks: dict[ObjectKey, _Track] = field(default_factory=dict[ObjectKey, _Track])
    #: newest version that an answer brought, until the watch has shown it
    _answered: dict[ObjectKey, int] = field(default_factory=dict[ObjectKey, int])

    def begin(self, key: ObjectKey, *, base: int, doubt: bool) -> None:
        """Record that a write is in flight; `base` is the version last known (0 = none)."""
        track = self._tracks.setdefault(key, _Track())
        track.writes += 1
        track.doubts += doubt
        track.shown = max(track.shown, base)

    def __bool__(self) -> bool:
        """Whether any write is in flight, or an answer not shown yet."""
        return bool(self._tracks or self._answered)

    def in_doubt(self, key: ObjectKey) -> bool:
        track = self._tracks.get(key)
        return track is not None and track.doubts > 0

    def seen(self, key: ObjectKey, obj: Stored) -> bool:
        """Note that the watch shows `obj`. Returns True when it may be used now, False when it is outdated or held back."""
        version = obj.revision
        if 0 < version < self._answered.get(key, 0):
            return False
        self._answered.pop(key, None)
        track = self._tracks.get(key)
        if track is None:
            return True
        track.shown = version
        if track.doubts:
            track.held = obj
            return False
        return True

    def gone(self, key: ObjectKey, uid: str) -> None:
        """Note that the watch shows the object as deleted: held versions and later answers of it are void."""
        self._answered.pop(key, None)
        track = self._tracks.get(key)
        if track is not None:
            track.held = None
            track.gone = uid

    def has_news(self, key: ObjectKey, base: int) -> bool:
        """Whether the watch has shown more than the version that a write was based on."""
        track = self._tracks.get(key)
        return track is not None and (track.gone != "" or track.shown > base)

    def end(self, key: ObjectKey, answer: Stored | None, *, doubt: bool) -> Stored | None:
        """Note that a write is resolved, with the object that was answered (None: no news). Returns the version to use now, if
        any.
        """
        track = self._tracks[key]
        track.writes -= 1
        track.doubts -= doubt
        newest: Stored | None = None
        # a write that changes nothing answers with the version it found
        if answer is not None and answer.revision > track.shown and answer.uid != track.gone:
            track.shown = self._answered[key] = answer.revision
            track.held = None
            newest = answer
        if not track.doubts and track.held is not None:
            newest, track.held = track.held, None
        if not track.writes:
            del self._tracks[key]
        return newest
