"""Links of the pages: none is broken, and `scripts/links.py` finds one that is."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def links() -> ModuleType:
    spec = importlib.util.spec_from_file_location("links", ROOT / "scripts" / "links.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["links"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def page(links: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(links, "ROOT", tmp_path)
    (tmp_path / "other.md").write_text(
        "# Top\n\n## It's `code`, and more\n\n## Twice\n\n## Twice\n\n```\n# no heading\n```\n"
    )
    (tmp_path / "run.py").write_text("")
    return tmp_path / "page.md"


def test_all_pages_are_looked_at(links: ModuleType) -> None:
    """By `make check`."""
    assert len(links.pages()) > 25


@pytest.mark.parametrize(
    "link",
    [
        *(
            "other.md",
            "./other.md",
            "other.md#top",
            "other.md#its-code-and-more",
            "other.md#twice-1",
            "run.py",
            "#here",
        ),
        *("https://example.com/x#y", "mailto:a@example.com", "<other.md>", 'other.md "title"'),
    ],
)
def test_links_that_lead_somewhere(links: ModuleType, page: Path, link: str) -> None:
    page.write_text(f"# Here\n\n[text]({link}) and ![image](run.py)\n")
    assert links.check([page]) == []


@pytest.mark.parametrize(
    "link", ["", "missing.md", "../outside.md", "other.md#no-heading", "other.md#twice-2", "#there", "run.py#L3"]
)
def test_links_that_lead_nowhere(links: ModuleType, page: Path, link: str) -> None:
    page.write_text(f"# Here\n\ntext\n[text]({link})\n")
    (found,) = links.check([page])
    assert found.startswith("page.md:4: ")


@pytest.mark.parametrize("text", ["`[text](missing.md)`", "```sh\n[text](missing.md)\n```", "``a ` [x](missing.md)``"])
def test_code_has_no_links(links: ModuleType, page: Path, text: str) -> None:
    page.write_text(f"{text}\n")
    assert links.check([page]) == []


def test_paths_in_code_have_to_exist_except_on_dated_pages(links: ModuleType, page: Path) -> None:
    (page.parent / "scripts").mkdir()
    page.write_text("`scripts/` has `scripts/none.py`\n")
    assert links.check([page]) == ["page.md:1: `scripts/none.py`: there is no such file or folder"]
    changes = page.with_name("CHANGELOG.md")
    changes.write_text("`scripts/none.py` is gone\n")
    assert links.check([changes]) == []


def test_definitions_and_html_are_links_too(links: ModuleType, page: Path) -> None:
    page.write_text('[a]: missing.md\n<a href="gone.md">x</a>\n')
    assert [line.partition(": ")[0] for line in links.check([page])] == ["page.md:1", "page.md:2"]


def test_every_page_has_its_place_in_the_site() -> None:
    """What `make docs` would refuse, without its packages."""
    nav = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    assert pages <= nav
    assert all((docs / name).exists() or (ROOT / name).exists() for name in nav)
    assert "README.md" not in pages  # it would take the place of index.md
