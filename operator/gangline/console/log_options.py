"""The options that say how the operator and the webhooks log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from gangline import logs


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
