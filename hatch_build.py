"""Adds the dashboard's pages to the wheel. They are built before it, by `make ui`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DashboardPages(BuildHookInterface[Any]):
    """Puts ui/dist at gangline/_data/ui. An editable installation serves them from the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raises FileNotFoundError where the pages were not built, unless GANGLINE_WITHOUT_UI is set."""
        pages = Path(self.root) / "ui" / "dist"
        if version == "editable" or self.target_name != "wheel":
            return
        if (pages / "index.html").is_file():
            build_data["force_include"][str(pages)] = "gangline/_data/ui"
        elif not os.environ.get("GANGLINE_WITHOUT_UI"):
            raise FileNotFoundError("ui/dist: the dashboard's pages were not built: `make ui` builds them")
