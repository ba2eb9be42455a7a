"""Windows of time: once, or every week by the clocks of a time zone."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gangline import bounded
from gangline.api.schedules import TIME_OF_DAY, USUAL_ZONE
from gangline.api.schema.common import Duration, Time
from gangline.api.schema.json_schema import LIST_SET, ApiModel

Day = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


class WeeklySchedule(ApiModel):
    """Windows that begin on some days of every week, at a time of day."""

    days: Annotated[list[Day], Field(min_length=1, max_length=7), LIST_SET]
    """The days on which a window begins."""
    time: Annotated[str, Field(max_length=5, pattern=TIME_OF_DAY)]
    """The time of day at which it begins, by the clocks of the time zone: 17:40. Where clocks are put forward and this time is
    skipped, the window begins as much later; where they are put back and it comes twice, at the first."""
    duration: Duration
    """How long it lasts, at most 7 days."""
    time_zone: Annotated[str, Field(min_length=1, max_length=bounded.LONGEST_ZONE, pattern=bounded.ZONE)] = USUAL_ZONE
    """The time zone, by its name in the IANA database: Europe/Berlin."""


class TimeWindow(ApiModel):
    """When it is: once, from `start` to `end`, or every week by `schedule`."""

    start: Time | None = None
    """The beginning of the only window."""
    end: Time | None = None
    """The end of the only window, at most 92 days later."""
    schedule: WeeklySchedule | None = None
    """Windows that come again every week."""
