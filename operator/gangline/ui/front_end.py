"""Finds the folder of the built front end."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


class NotBuiltError(Exception):
    """The front end was not built: there is nothing to serve."""


def built() -> Path:
    """Where the front end's files are: in the package, or in the checkout. Raises NotBuiltError."""
    packaged = Path(str(resources.files("gangline") / "_data" / "ui"))
    checkout = Path(__file__).parents[3] / "ui" / "dist"
    for found in (packaged, checkout):
        if (found / "index.html").is_file():
            return found
    raise NotBuiltError("the dashboard's pages were not built: `make ui` builds them")
