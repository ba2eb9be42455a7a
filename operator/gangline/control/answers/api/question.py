"""Parameters of a request, read and bounded. A parameter that is unknown or of the wrong form is refused by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any, Final

from gangline import bounded
from gangline.api import label_syntax
from gangline.control.answers.pages import ListPage

#: items of one page, where the request gives no limit, and at most
DEFAULT_LIMIT: Final = 250
MOST: Final = 1000
#: seconds that a plan looks ahead, where the request gives no horizon, and at most: as far as expected starts are computed
DEFAULT_HORIZON: Final = 86_400
LONGEST_HORIZON: Final = 7 * 86_400
#: seconds that a history looks back, where the request says nothing, and at most: as long as runs are kept
DEFAULT_SINCE: Final = 86_400
LONGEST_SINCE: Final = 180 * 86_400
#: … at attempts, and sums of them: as long as these are kept
LONGEST_USAGE: Final = 400 * 86_400
#: seconds of a stream, where the request says nothing, and at most
USUAL_STREAM: Final = 300
LONGEST_STREAM: Final = 3600
#: keys of annotations that one question may name
MOST_KEYS: Final = 4
#: characters of the longest name in the API
_NAME: Final = 253
#: parameters that clients add to any request, and that change nothing here
_HARMLESS: Final = frozenset({"pretty", "timeout", "timeoutSeconds", "resourceVersion", "resourceVersionMatch"})


_FLAGS: Final = ("watch", "allowWatchBookmarks", "sendInitialEvents")


class QuestionError(ValueError):
    """Says that a parameter is wrong; the text names it."""


@dataclass(frozen=True, slots=True)
class Question:
    page: ListPage = field(default_factory=lambda: ListPage(0, DEFAULT_LIMIT))
    cluster_queue: str = ""
    kind: str = ""
    finished: bool = False
    times: bool = False
    horizon: int = DEFAULT_HORIZON
    #: a window of time, from so many seconds ago until so many
    since: int = DEFAULT_SINCE
    until: int = 0
    #: decisions about one Workload of the namespace
    workload: str = ""
    #: by what sums are grouped, and after how many seconds a GPU-hour weighs half
    by: str = ""
    half_life: int | None = None
    #: attempts that ended so, of jobs of this name; of jobs that were preempted for these, with `caused`
    ended_as: str = ""
    job: str = ""
    caused: bool = False
    #: whether preemptions could have lost less is wanted, too
    cheaper: bool = False
    #: the time over which sums are made, in Unix seconds; None: the last `since` seconds, and up to now
    start: int | None = None
    end: int | None = None
    #: the time that is asked about, in Unix seconds; None: now
    at: int | None = None
    #: where days begin at midnight
    zone: tzinfo = UTC
    #: keys of annotations or labels of which the values are wanted
    annotations: tuple[str, ...] = ()
    #: a list that goes on, for so many seconds, after this version; None: from now on
    watch: bool = False
    after: int | None = None
    seconds: int = USUAL_STREAM

    @classmethod
    def of(cls, query: Mapping[str, str], known: frozenset[str], longest: int = LONGEST_SINCE) -> Question:
        """Read a question from the parameters of a URL, of which `known` have a meaning. `longest`: how many seconds it may
        look back. Raises QuestionError.
        """
        for name in query:
            if name not in known and name not in _HARMLESS:
                raise QuestionError(f"{bounded.shown(name)}: there is no such parameter")
        since = _span("sinceSeconds", _number(query, "sinceSeconds", DEFAULT_SINCE), longest)
        until = _number(query, "untilSeconds", 0)
        if until >= since:
            raise QuestionError(f"untilSeconds must be less than sinceSeconds, which is {since}, not {until}")
        start, end = _instant(query, "start"), _instant(query, "end")
        if start is not None and end is not None and start >= end:
            raise QuestionError(f"start must be before end, which is {end}, not {start}")
        return cls(
            page=ListPage(_number(query, "continue", 0), min(MOST, _number(query, "limit", 0) or DEFAULT_LIMIT)),
            cluster_queue=_name(query, "clusterQueue"),
            kind=_name(query, "kind"),
            finished=_flag(query, "finished"),
            times=_flag(query, "times"),
            horizon=_span("horizonSeconds", _number(query, "horizonSeconds", DEFAULT_HORIZON), LONGEST_HORIZON),
            since=since,
            until=until,
            by=_name(query, "by"),
            workload=_name(query, "workload"),
            half_life=_span("halfLifeSeconds", half, LONGEST_SINCE)
            if (half := _number(query, "halfLifeSeconds", 0))
            else None,
            ended_as=_name(query, "endedAs"),
            job=_name(query, "job"),
            caused=_flag(query, "caused"),
            cheaper=_flag(query, "cheaper"),
            start=start,
            end=end,
            at=_instant(query, "at"),
            zone=time_zone(query.get("timeZone") or "UTC"),
            annotations=_keys(query, "annotations"),
            **(_stream(query) if "watch" in known else {}),
        )


def _stream(query: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of a watch; flags as the clients of Kubernetes write them."""
    given = {name: {"1": "true", "0": "false"}.get(query[name], query[name]) for name in _FLAGS if name in query}
    _flag(given, "allowWatchBookmarks")
    _flag(given, "sendInitialEvents")
    return {
        "watch": _flag(given, "watch"),
        "after": _number(query, "resourceVersion", 0) if query.get("resourceVersion") else None,
        "seconds": min(LONGEST_STREAM, _number(query, "timeoutSeconds", 0) or USUAL_STREAM),
    }


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if not text:
        return default
    found = bounded.whole(text)
    if found is None:
        raise QuestionError(f"{name} must be a whole number, not {bounded.shown(text)}")
    return found


def _instant(query: Mapping[str, str], name: str) -> int | None:
    return _number(query, name, 0) if query.get(name) else None


def time_zone(name: str) -> tzinfo:
    """The time zone of this name, such as Europe/Berlin. Raises QuestionError."""
    try:
        return bounded.time_zone(name)
    except ValueError as error:
        raise QuestionError(f"timeZone: {error}") from None


def _span(name: str, seconds: int, longest: int) -> int:
    if not 0 < seconds <= longest:
        raise QuestionError(f"{name} must be from 1 to {longest}, not {seconds}")
    return seconds


def _name(query: Mapping[str, str], name: str) -> str:
    text = query.get(name, "")
    if len(text) > _NAME:
        raise QuestionError(f"{name} has more than {_NAME} characters")
    return text


def _keys(query: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Keys of annotations or labels, with commas between them."""
    text = query.get(name)
    if not text:
        return ()
    keys = text.split(",", MOST_KEYS)
    if len(keys) > MOST_KEYS:
        raise QuestionError(f"{name} must have at most {MOST_KEYS} keys")
    for key in keys:
        if not label_syntax.is_key(key):
            raise QuestionError(f"{name}: {bounded.shown(key)} is no key of an annotation or a label")
    return tuple(dict.fromkeys(keys))


def _flag(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "false")
    if text not in ("true", "false"):
        raise QuestionError(f"{name} must be true or false, not {bounded.shown(text)}")
    return text == "true"
