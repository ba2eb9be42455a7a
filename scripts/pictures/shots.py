"""Which pictures there are: a page of the dashboard each, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"
WIDTH, HEIGHT = 1440, 900
THEMES: Final = ("light", "dark")


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture: its name, the page's path (`begin`: an instant shortly before now; `story`: one a few minutes before), a text of
    the complete page, and a key or button that is pressed before.
    """

    name: str
    path: str
    complete: str
    key: str = ""
    button: str = ""

    def file(self, theme: str) -> Path:
        return FOLDER / f"{self.name}-{theme}.png"


#: in the order in which they are taken
SHOTS: Final = (
    Shot("now", "now", "Next to start"),
    Shot("timeline", "timeline", "Legend"),
    Shot("timeline-nodes", "timeline?group=nodes&span=21600&start={begin}", "Legend"),
    Shot("decisions", "timeline?span=3600&cursor={story}", "What the engine knew", key="["),
    Shot("jobs", "jobs?sort=-gpus", "mixtral-8x22b"),
    Shot("job", "jobs/team-language/gpujob/mixtral-8x22b", "mixtral-8x22b"),
    Shot("queues", "queues?queue=language", "LocalQueues and users"),
    Shot("nodes", "nodes", "Largest gang that fits now"),
    Shot("trust", "trust", "differ"),
    Shot("use", "use", "GPU-hours"),
    Shot("operator", "operator", "Run doctor again", button="Run doctor"),
)


def files() -> Iterator[Path]:
    """All files that `make pictures` writes."""
    for shot in SHOTS:
        for theme in THEMES:
            yield shot.file(theme)
