"""The time of the cluster: the API server's, which nearly all times in objects come from.

A machine's own clock may be off by a minute, and the next leader's by another one in the other direction. An operator that
compared times of the cluster with such a clock would end runs early or never, and its own times would mislead the next leader. So
the offset is measured by the `Date` of the API server's answers, and times are reckoned in the API server's time.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from gangline import bounded

log = logging.getLogger(__name__)

#: this machine's clock, in seconds since the epoch
read: Callable[[], float] = time.time

#: seconds; smaller offsets are not corrected, since `Date` has whole seconds, and an answer takes its time
TOLERANCE: Final = 2.0
#: seconds that an answer may take if its `Date` is to count
QUICK: Final = 1.0
#: seconds between two measurements
PERIOD: Final = 10.0
#: measurements of which the median counts: API servers may differ, and clocks are set
SAMPLES: Final = 5
#: characters of a `Date`
_LONGEST: Final = 64


class ClusterClock:
    """One API server's time, as far as its answers have shown it."""

    def __init__(self) -> None:
        #: seconds by which the API server's clock is ahead of ours; 0 within the tolerance
        self.offset = 0.0
        self._samples: deque[float] = deque(maxlen=SAMPLES)
        self._due = 0.0

    def seconds(self) -> float:
        """The cluster's time in seconds since the epoch."""
        return read() + self.offset

    def millis(self) -> int:
        return round(self.seconds() * 1000)

    def utc(self) -> datetime:
        return datetime.fromtimestamp(self.seconds(), UTC)

    def heard(self, date: str, sent: float) -> None:
        """An answer with this `Date` arrived; its request was sent at `sent` (time.monotonic())."""
        now = time.monotonic()
        if now < self._due or now - sent > QUICK:
            return
        moment = _moment(date)
        if moment is None:
            return
        self._due = now + PERIOD
        # `Date` is cut to seconds: half a second later on average
        self._samples.append(moment + 0.5 - (read() - (now - sent) / 2))
        measured = statistics.median(self._samples)
        offset = measured if abs(measured) > TOLERANCE else 0.0
        if abs(offset - self.offset) > TOLERANCE:
            self.offset = offset
            if offset:
                where = "behind" if offset > 0 else "ahead of"
                log.warning("this machine's clock is %.0f s %s the API server's, whose time counts", abs(offset), where)
            else:
                log.info("this machine's clock agrees with the API server's again")


@bounded.parser(_LONGEST, instead=None, worst=("9", "Mon, ", "1 Jan ", ":", "-", "(", "+"))
def _moment(date: str) -> float | None:
    """Seconds since the epoch of an HTTP date; None if it is none."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
