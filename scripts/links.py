"""Checks the links of all pages: relative ones lead to a file or folder of the repository, and anchors to a heading. Paths of the
repository's own folders in code, such as `operator/gangline/jobs/base.py`, have to exist as well.

    python scripts/links.py [FILE…]     by default docs/, examples/ and the pages at the root; exit status 1 if a link is broken

What leads out of the repository (https:, mailto:) is not followed.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote

ROOT: Final = Path(__file__).resolve().parents[1]
FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})")
SPAN: Final = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
HEADING: Final = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*$")
#: [text](target), ![image](target) and [label]: target
LINK: Final = re.compile(r"\]\(\s*<?([^)\s>]*)>?(?:\s+\"[^\"]*\")?\s*\)|^ {0,3}\[[^\]]+\]:\s+(\S+)")
PLACED: Final = re.compile(r"<[a-z]+[^>]*\b(?:id|name)=\"([^\"]+)\"")
HREF: Final = re.compile(r"\b(?:href|src|srcset)=\"([^\"]+)\"")
#: a path within the repository, as code; not on pages that keep the words of their day
PATH: Final = re.compile(r"`((?:operator|webhooks|tests|scripts|bench|examples|docs|crds)/[\w./-]*)`")
DATED: Final = ("CHANGELOG.md", "bench/lab/")
OUTSIDE: Final = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


def pages() -> list[Path]:
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted(ROOT.glob("docs/**/*.md")),
        *sorted(ROOT.glob("bench/lab/*.md")),
        *sorted(ROOT.glob("examples/**/*.md")),
    ]


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are not code, with their numbers."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        found = FENCE.match(line)
        if fence:
            fence = "" if found and found[1].startswith(fence) else fence
        elif found:
            fence = found[1]
        else:
            yield number, line


def slug(text: str, separator: str = "-") -> str:
    """The anchor of a heading, as GitHub makes it; `make docs` uses it, too."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "")
    return re.sub(r"[^\w\- ]", "", re.sub(r"<[^>]*>", "", text).strip().lower()).replace(" ", separator)


@cache
def anchors(page: Path) -> frozenset[str]:
    found: list[str] = []
    seen: Counter[str] = Counter()
    for _, line in prose(page.read_text(encoding="utf-8")):
        if heading := HEADING.match(line):
            name = slug(heading[1])
            found.append(f"{name}-{seen[name]}" if seen[name] else name)
            seen[name] += 1
        found += PLACED.findall(line)
    return frozenset(found)


def links(page: Path) -> Iterator[tuple[int, str]]:
    for number, line in prose(page.read_text(encoding="utf-8")):
        line = SPAN.sub("`", line)
        for found in LINK.finditer(line):
            yield number, found[1] or found[2] or ""
        for target in HREF.findall(line):
            yield number, target


def paths(page: Path) -> Iterator[tuple[int, str]]:
    if not page.relative_to(ROOT).as_posix().startswith(DATED):
        for number, line in prose(page.read_text(encoding="utf-8")):
            yield from ((number, path) for path in PATH.findall(line))


def broken(page: Path) -> Iterator[tuple[int, str]]:
    """Line and reason of every link that leads nowhere."""
    for number, target in links(page):
        if OUTSIDE.match(target):
            continue
        path, _, anchor = unquote(target).partition("#")
        there = (page.parent / path).resolve() if path else page
        if not target or not there.is_relative_to(ROOT):
            yield number, f"{target or '()'}: not a place in this repository"
        elif not there.exists():
            yield number, f"{target}: there is no {there.relative_to(ROOT)}"
        elif anchor and there.suffix == ".md" and anchor not in anchors(there):
            yield number, f"{target}: {there.relative_to(ROOT)} has no heading #{anchor}"
        elif anchor and there.suffix != ".md":
            yield number, f"{target}: only pages have headings"
    for number, path in paths(page):
        if not (ROOT / path).exists():
            yield number, f"`{path}`: there is no such file or folder"


def check(which: Iterable[Path]) -> list[str]:
    return [f"{page.relative_to(ROOT)}:{number}: {why}" for page in which for number, why in broken(page)]


def main(arguments: Sequence[str]) -> int:
    found = check([Path(name).resolve() for name in arguments] or pages())
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
