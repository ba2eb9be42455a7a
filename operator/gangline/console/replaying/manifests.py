"""Objects of one kind in a file of manifests, as `kubectl apply` would take it. A file may come from anywhere, and is bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from gangline.files import read_text
from gangline.kube.resources import Json
from gangline.replay.replayed import ReplayError

#: characters of a file, and objects of the kind in it
LONGEST: Final = 200_000
MOST: Final = 50
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """A safe loader without aliases, by which a short file could become a huge value. Times stay text, as in the API."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in found if tag != _TIMESTAMP]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


def text_of(path: Path, option: str) -> str:
    """The text of a file that an option names. Raises ReplayError."""
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ReplayError(f"{option} {path}: {error}") from error


def of_kind(text: str, file: str, kind: str) -> list[Json]:
    """The objects of a kind, of which there is one at least; others are passed over. Raises ReplayError."""
    if len(text) > LONGEST:
        raise ReplayError(f"{file} is longer than {LONGEST} characters")
    try:
        documents: list[Any] = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ReplayError(f"{file} is not YAML: {error}") from None
    found = [each for each in documents if isinstance(each, dict) and each.get("kind") == kind]
    if not found:
        raise ReplayError(f"{file} has no {kind}")
    if len(found) > MOST:
        raise ReplayError(f"{file} has more than {MOST} of kind {kind}")
    return found
