"""The first words of docstrings: each says by itself what a thing is or does, so none begins in the middle of a thought."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "operator" / "gangline", ROOT / "webhooks" / "gangline_webhooks")
#: a docstring that begins so continues the name of a function, or speaks of something that it does not name
HEADLESS = frozenset(
    (
        "About",
        "Above",
        "Among",
        "At",
        "Below",
        "Besides",
        "Between",
        "By",
        "For",
        "From",
        "In",
        "Into",
        "It",
        "Its",
        "Of",
        "On",
        "Over",
        "Per",
        "To",
        "Under",
        "With",
        "Within",
        "Without",
    )
)
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def folders() -> list[str]:
    """The top folders of the packages, and the packages themselves for the modules beside these folders."""
    inner = [folder for package in PACKAGES for folder in package.iterdir() if any(folder.glob("**/*.py"))]
    return sorted(str(folder.relative_to(ROOT)) for folder in (*PACKAGES, *inner))


def sources(folder: str) -> list[Path]:
    path = ROOT / folder
    return sorted(path.glob("*.py") if path in PACKAGES else path.rglob("*.py"))


def docstrings(source: str) -> Iterator[tuple[str, str]]:
    """The name and the docstring of everything in a module that has one; the module itself is called ""."""

    def inside(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, (ast.Module, *DEFINITIONS)) and (text := ast.get_docstring(node)):
            yield name, text
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                continue  # no definition is inside
            own = child.name if isinstance(child, DEFINITIONS) else ""
            yield from inside(child, ".".join(filter(None, (name, own))))

    return inside(ast.parse(source), "")


def headless(source: str) -> list[str]:
    """The names of what has a docstring that begins with a preposition, with "It" or with "Its"."""
    return [name for name, text in docstrings(source) if text.split()[0].strip("`\"'.,:;") in HEADLESS]


@pytest.mark.parametrize("folder", folders())
def test_no_docstring_begins_in_the_middle_of_a_thought(folder: str) -> None:
    assert sources(folder)
    found = {str(path.relative_to(ROOT)): headless(path.read_text()) for path in sources(folder)}
    assert [f"{path}:{name}" for path, names in found.items() for name in names] == []


def test_every_module_is_in_one_folder() -> None:
    every = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
    assert sorted(path for folder in folders() for path in sources(folder)) == every


@pytest.mark.parametrize(
    ("docstring", "is_headless"),
    [
        ("Of its devices.", True),
        ("It is deleted.", True),
        ("Its quota.", True),
        ("In: a workload. Out: a decision.", True),
        ("Without a Workload: the group has at most `total` pods.", True),
        ("The names of its devices.", False),
        ("Whether it is deleted.", False),
        ("Inside of a topology.", False),
        ("Items of a list.", False),
    ],
)
def test_first_words(docstring: str, is_headless: bool) -> None:
    of_function = f'async def named():\n    """{docstring}"""\n'
    of_class = f'class Known:\n    class Inner:\n        """{docstring}"""\n'
    of_nested = f'if True:\n    def outer():\n        def inner():\n            """{docstring}"""\n'
    assert headless(f'"""{docstring}"""\n') == [""] * is_headless
    assert headless(of_function) == ["named"] * is_headless
    assert headless(of_class) == ["Known.Inner"] * is_headless
    assert headless(of_nested) == ["outer.inner"] * is_headless
