"""What `make docs` does beyond MkDocs: pages outside docs/ are part of the site, and anchors are those of GitHub.

Links to other files of the repository (manifests, code) stay as text: the site stands alone.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any, Final

import links  # beside this file
from mkdocs.structure.files import File, Files

#: pages outside docs/ -> where they are in the site
BESIDE: Final = {
    "README.md": "overview.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "examples/gke-hotswap/README.md": "examples/gke-hotswap.md",
}
INLINE: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
#: a picture as HTML, which has a light and a dark form
PICTURE: Final = re.compile(r"\b(src|srcset)=\"([^\"]+)\"")


def on_config(config: Any) -> Any:
    config["mdx_configs"].setdefault("toc", {})["slugify"] = links.slug
    return config


def on_files(files: Files, config: Any) -> Files:
    for source, place in BESIDE.items():
        files.append(File.generated(config, place, abs_src_path=str(links.ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    place = page.file.src_uri
    source = next((path for path, name in BESIDE.items() if name == place), f"docs/{place}")
    lines = markdown.splitlines()
    for number, line in links.prose(markdown):
        line = INLINE.sub(lambda found: _link(found, source, place), line)
        lines[number - 1] = PICTURE.sub(lambda found: f'{found[1]}="{_moved(found[2], source, place)}"', line)
    return "\n".join(lines)


def _moved(target: str, source: str, place: str) -> str:
    """The address of a file below docs/, as the page in the site has to write it."""
    there = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    return posixpath.relpath(there.removeprefix("docs/"), posixpath.dirname(place) or ".")


def _link(found: re.Match[str], source: str, place: str) -> str:
    """The link as it has to be in the site, or its text where the site has no such page."""
    text, target = found[1], found[2]
    path, mark, anchor = target.partition("#")
    if links.OUTSIDE.match(target) or not path:
        return found[0]
    there = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    wanted = BESIDE.get(there) or (there.removeprefix("docs/") if there.startswith("docs/") else None)
    if wanted is None:
        return text
    return f"[{text}]({posixpath.relpath(wanted, posixpath.dirname(place) or '.')}{mark}{anchor})"
