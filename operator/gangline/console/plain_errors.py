"""Errors of a development cluster as one message, without a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from gangline.devcluster.errors import DevClusterError


@contextmanager
def plain_errors() -> Iterator[None]:
    """Report a DevClusterError as one message and exit status 1."""
    try:
        yield
    except DevClusterError as error:
        raise click.ClickException(str(error)) from error
