"""Options, and types of option values, that several commands share."""

from __future__ import annotations

import functools
import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gangline import files, logs
from gangline.api import quantity

#: history and model of forecasts, of the operator and of `gangline admin forecast`, unless options name others
FORECAST_DIRECTORY = Path("~/.local/share/gangline/forecast").expanduser()
#: bytes of the smallest useful size
LEAST_BYTES = 2**20
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class Instant(click.ParamType[float]):
    """A date or date and time (UTC unless it names a zone), or seconds of the trace's clock."""

    name = "date"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return float(value)
        except ValueError:
            pass
        try:
            parsed = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is neither a date such as 2020-08-01 or 2020-08-01T12:00 nor a number of seconds",
                param,
                ctx,
            )
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


class Size(click.ParamType[int]):
    """A number of bytes, as a Kubernetes quantity: 512Mi, 2Gi."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            size = quantity.parse(value, "memory")
        except quantity.QuantityError:
            self.fail(f"{value!r} is not a size such as 512Mi or 2Gi", param, ctx)
        if size < LEAST_BYTES:
            self.fail(f"{value} is less than 1Mi", param, ctx)
        return size


class Span(click.ParamType[float]):
    """A duration such as 30m, 12h or 7d, in seconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        number, unit = value[:-1], value[-1:]
        try:
            seconds = float(number) * _UNITS[unit]
        except (KeyError, ValueError):
            self.fail(f"{value!r} is not a duration such as 30m, 12h or 7d", param, ctx)
        if not 0 < seconds < math.inf:
            self.fail(f"{value!r} must be positive", param, ctx)
        return seconds


def host_and_port(text: str, every: str = "0.0.0.0", option: str | None = None) -> tuple[str, int]:
    """The address that `HOST:PORT` names; `every`: the host where none is given. Raises click.BadParameter."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT, such as 127.0.0.1:0", param_hint=option)
    return host.strip("[]") or every, int(port)


def listening_at(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, int]:
    """The callback of an option whose value is an address to listen on."""
    return host_and_port(value)


def file_option(help_: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `-f`, `--file`, which the command gets as `file`, and `-o PATH`, as once: in other commands that is a format."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def gathered(**given: Any) -> Any:
            file, old = given.pop("file"), given.pop("once_output")
            if file is not None and old is not None:
                raise click.UsageError("-o is what --file was: give one of them")
            return command(file=file or old, **given)

        path = click.Path(dir_okay=False, path_type=Path)
        gathered = click.option("-o", "--output", "once_output", type=_OnceOutput(), hidden=True)(gathered)
        return click.option("-f", "--file", type=path, default=None, help=help_)(gathered)

    return decorate


class _OnceOutput(click.ParamType[Path]):
    """The path of a file that was given as `-o`; the name of a format is none."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if value in _FORMATS:
            self.fail(f"{value} is a format, and what this command makes is a file: name it with --file", param, ctx)
        return Path(os.fsdecode(click.Path(dir_okay=False).convert(value, param, ctx)))


#: values of -o in other commands
_FORMATS = ("json", "yaml", "wide", "name")


# --- the options that say how the operator and the webhooks log -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogOptions:
    form: str
    level: str

    def begin(self) -> None:
        logs.begin(self.form, self.level)


def with_log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; the command gets them as the argument `log_options`."""

    def receiving(*args: Any, log_format: str, log_level: str, verbose: bool, **options: Any) -> Any:
        chosen = LogOptions(log_format, "debug" if verbose else log_level)
        return command(*args, log_options=chosen, **options)

    receiving.__doc__ = command.__doc__
    receiving.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="The same as --log-level debug."),
        click.option("--log-level", type=click.Choice(logs.LEVELS), default="info", show_default=True),
        click.option(
            "--log-format",
            type=click.Choice(logs.FORMATS),
            default="text",
            show_default=True,
            help="json: one object per line, with time, level, logger, message and the particulars.",
        ),
    ):
        option(receiving)
    return receiving


# --- `--config`: Kueue's configuration file, which the operator and the webhooks read when they start -----------------


if TYPE_CHECKING:
    from gangline.api.read.configuration import Configuration

log = logging.getLogger(__name__)


def read_configuration(path: Path | None, *, tell: bool = True) -> Configuration:
    """The configuration in the file, or the defaults without a file. `tell`: log what in it has no effect."""
    from gangline.api.read.configuration import ConfigurationError, load, parse

    try:
        chosen = load(parse(files.read_text(path)) if path else None)
    except (ConfigurationError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path}: {error}") from error
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be read: {error.strerror or error}") from error
    if not tell:
        return chosen
    if chosen.ignored:
        log.warning("%s: these fields have no effect in Gangline: %s", path, ", ".join(chosen.ignored))
    for warning in chosen.warnings:
        log.warning("%s: %s", path, warning)
    return chosen
