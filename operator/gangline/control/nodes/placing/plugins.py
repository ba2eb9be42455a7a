"""Scorers that users write: entry points of the group `gangline.scorers`, loaded at the start, each guarded by itself.

A scorer is a function of a pod and a node, both plain mappings, that returns a number from 0 to 100. One that raises, returns
something else, or takes too long, is not asked for a while: all nodes have the same points from it, and the policies that name it
say so. It runs in the operator's process, so that only what its image contains can be loaded.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from typing import Any, Final

from gangline import bounded
from gangline.control.isolation.time_limit import TookTooLongError, limited
from gangline.engine import OWN_SCORERS, OwnScorers

log = logging.getLogger(__name__)

GROUP: Final = "gangline.scorers"
#: seconds that one question may take, …
LONGEST: Final = 0.1
#: … and all questions to one scorer within a minute
BUDGET: Final = 6.0
WINDOW: Final = 60.0
#: seconds for which a scorer that failed is not asked
PAUSE: Final = 60.0
#: scorers that are loaded
MOST: Final = 32
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_POINT: Final = 10_000


class Guarded:
    """One scorer. `trouble` says why it is not asked at present, "" = it is."""

    def __init__(self, name: str, score: Callable[..., Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.trouble = ""
        self.failures = 0
        self._score = score
        self._clock = clock
        self._paused_until = -math.inf
        self._window = -math.inf
        self._spent = 0.0

    def __call__(self, pod: Mapping[str, object], node: Mapping[str, object]) -> int | None:
        start = self._clock()
        if start < self._paused_until:
            return None
        if start - self._window > WINDOW:
            self._window, self._spent = start, 0.0
        try:
            found = limited(lambda: self._score(pod, node), LONGEST, wall=True)
        except TookTooLongError:
            return self._fail(f"took more than {LONGEST:g} s for one node")
        except Exception as error:
            return self._fail(f"{type(error).__name__}: {error}"[:200])
        self._spent += self._clock() - start
        if self._spent > BUDGET:
            return self._fail(f"took more than {BUDGET:g} s within a minute")
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= 100:
            return self._fail(f"returned {found!r:.50}, which is no number from 0 to 100")
        self.trouble = ""
        return math.floor(found * _POINT)

    def _fail(self, trouble: str) -> None:
        if trouble != self.trouble:
            log.warning("scorer %s is not asked for %g s: it %s", self.name, PAUSE, trouble)
        self.trouble = trouble
        self.failures += 1
        self._paused_until = self._clock() + PAUSE


class Plugins:
    """The scorers that this process loaded, and those that it could not load."""

    def __init__(self, scorers: OwnScorers = OWN_SCORERS) -> None:
        self._scorers = scorers
        self._loaded: dict[str, Guarded] = {}
        self._unloaded: dict[str, str] = {}

    def load(self, found: Iterable[metadata.EntryPoint] | None = None) -> None:
        """Load what is installed. A scorer that cannot be loaded costs itself alone."""
        entries = sorted(metadata.entry_points(group=GROUP) if found is None else found, key=lambda each: each.name)
        for entry in entries[:MOST]:
            if not _is_name(entry.name):
                log.warning(
                    "scorer %.80r is not loaded: its name must be lower-case letters, digits and '-'", entry.name
                )
                continue
            try:
                score = entry.load()
                if not callable(score):
                    raise TypeError(f"{entry.value} is no function")
            except Exception as error:
                self._unloaded[entry.name] = f"{type(error).__name__}: {error}"[:200]
                log.warning("scorer %s is not loaded: %s", entry.name, self._unloaded[entry.name])
                continue
            self._loaded[entry.name] = guarded = Guarded(entry.name, score)
            self._scorers.put(entry.name, guarded)
            log.info("scorer %s is loaded from %s", entry.name, entry.value)

    def forget(self) -> None:
        """Unload everything."""
        for name in self._loaded:
            self._scorers.remove(name)
        self._loaded, self._unloaded = {}, {}

    def trouble(self, name: str) -> str:
        """Why a scorer gives no points at present, "" = it does."""
        loaded = self._loaded.get(name)
        if loaded is not None:
            return loaded.trouble
        return f"cannot be loaded: {self._unloaded[name]}" if name in self._unloaded else "is not installed"

    def troubles(self) -> dict[str, str]:
        """The troubles of all scorers that have one, by name."""
        return self._unloaded | {name: each.trouble for name, each in self._loaded.items() if each.trouble}

    def failures(self) -> dict[tuple[str, ...], float]:
        """How often each scorer failed."""
        return {(name,): each.failures for name, each in self._loaded.items()} | {
            (name,): 1.0 for name in self._unloaded
        }


@bounded.parser(63, instead=False, worst=("a", "a-"))
def _is_name(written: str) -> bool:
    return _NAME.fullmatch(written) is not None


#: Of the process; filled at its start.
PLUGINS: Final = Plugins()
