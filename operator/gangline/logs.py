"""Log lines of the operator and the webhooks: text or JSON, one line per record, whatever the texts in it contain.

Messages quote what users wrote. So control characters and line ends are escaped and lengths are bounded: no text can pass for a
line of its own. In text format a traceback follows its line, indented.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Final

from gangline.bounded import printable

FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
#: characters of the longest message, of the longest value of a field, and of the longest traceback (its end counts)
LONGEST: Final = 4000
LONGEST_VALUE: Final = 1000
LONGEST_TRACE: Final = 16_000
#: libraries that tell at info level what concerns nobody
NOISY: Final = ("kopf", "aiohttp", "asyncio")


class _Escaped(dict[int, str]):
    """Code point -> its escape where a terminal would obey or hide it, else the character itself."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        self[code] = found = char if printable(char) in (char, " ") else ascii(char)[1:-1]
        return found


_CONTROLS: Final = _Escaped()
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,+@*")


def begin(form: str, level: str) -> None:
    """Log to stderr in this format from this level on; an error that ends the process is logged, too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for name in NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    logging.captureWarnings(True)
    sys.excepthook = lambda kind, error, trace: logging.getLogger(__package__).critical(
        "the process ends", exc_info=(kind, error, trace)
    )


def tell(log: logging.Logger, what: str, **fields: Any) -> None:
    """One line at info level about an event; `fields` are its particulars, and None is left out."""
    log.info(what, extra={"fields": {name: value for name, value in fields.items() if value is not None}})


class TextLines(logging.Formatter):
    """Writes a record as `time level logger: message name=value …`."""

    def format(self, record: logging.LogRecord) -> str:
        head = f"{_time(record)} {record.levelname:<7} {record.name}: {_one_line(record.getMessage(), LONGEST)}"
        line = " ".join([head, *(f"{name}={_value(value)}" for name, value in _fields(record).items())])
        return "\n".join([line, *(f"    {_one_line(part, LONGEST)}" for part in _trace(record).splitlines())])


class JsonLines(logging.Formatter):
    """One JSON object per record: time, level, logger, message, the record's fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        head = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage(), LONGEST),
        }
        body = {**head, **{name: _bounded(value) for name, value in _fields(record).items()}, **head}
        if trace := _trace(record):
            body["exception"] = trace
        return json.dumps(body, default=lambda value: _cut(str(value), LONGEST_VALUE))


def _time(record: logging.LogRecord) -> str:
    """RFC 3339, in UTC."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{min(999, record.msecs):03.0f}Z"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return getattr(record, "fields", {})


def _trace(record: logging.LogRecord) -> str:
    """The traceback of the record's exception, or the one that it was given as a text (`trace`)."""
    text = getattr(record, "trace", "")
    if record.exc_info and record.exc_info[0] is not None:
        text = logging.Formatter().formatException(record.exc_info)
    return text if len(text) <= LONGEST_TRACE else f"…{text[-LONGEST_TRACE:]}"


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = _cut(text, LONGEST_VALUE)
    return text if text and _PLAIN.issuperset(text) else json.dumps(text)


def _bounded(value: Any) -> Any:
    return _cut(value, LONGEST_VALUE) if isinstance(value, str) else value


def _one_line(text: str, longest: int) -> str:
    return _cut(text, longest).translate(_CONTROLS)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
