"""Readers of the fields of a configuration file: each returns a value, or raises an error that names the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from gangline.api import quantity
from gangline.kube.resources import Json


class ConfigurationError(ValueError):
    """The message names the field."""


def mapping(body: Any, path: str) -> Json:
    if body is None:
        return {}
    if not isinstance(body, Mapping):
        raise ConfigurationError(f"{path or 'the configuration'}: a mapping is wanted, not {body!r}")
    return dict(cast("Mapping[str, Any]", body))


def only(body: Json, path: str, *fields: str) -> None:
    for name in body:
        if name not in fields:
            raise ConfigurationError(f"{path}.{name}: there is no such field")


def rows(body: Any, path: str, most: int) -> list[Any]:
    """The items of a list of at most so many; none without one."""
    if body is None:
        return []
    if not isinstance(body, list) or len(cast("list[Any]", body)) > most:
        raise ConfigurationError(f"{path}: a list of at most {most} entries is wanted")
    return cast("list[Any]", body)


def _leaf(path: str) -> str:
    return path.rpartition(".")[2]


#: characters of the longest text: an address with its port
_LONGEST: Final = 300


def text(body: Json, path: str, default: str) -> str:
    value = body.get(_leaf(path))
    if value is None or value == "":
        return default
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise ConfigurationError(f"{path}: a text of at most {_LONGEST} characters is wanted, not {str(value)[:80]!r}")
    return value


def duration(body: Json, path: str, default: str, *, key: str | None = None) -> float:
    """`key`: the field in `body`, where a name with dots is the end of the path."""
    text = body.get(key or _leaf(path)) or default
    try:
        seconds = quantity.parse_duration(str(text))
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    if seconds < 0:
        raise ConfigurationError(f"{path}: {text!r} is negative")
    return seconds


def number(body: Json, path: str, default: float, *, key: str | None = None) -> float:
    value = body.get(key or _leaf(path))
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ConfigurationError(f"{path}: a number from 0 is wanted, not {value!r}")
    return value


def flag(body: Json, path: str, *, default: bool = False) -> bool:
    value = body.get(_leaf(path))
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ConfigurationError(f"{path}: true or false is wanted, not {str(value)[:80]!r}")
    return value


def choice(body: Json, path: str, default: str, *others: str, key: str | None = None) -> str:
    value = body.get(key or _leaf(path)) or default
    if value not in (default, *others):
        raise ConfigurationError(f"{path}: {' or '.join((default, *others))} is wanted, not {value!r}")
    return str(value)
