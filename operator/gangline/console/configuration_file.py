"""`--config`: Kueue's configuration file, which the operator and the webhooks read when they start."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gangline import files

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
