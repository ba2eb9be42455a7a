"""The house as it is built: no import goes round in a circle, and no package has more in it than a newcomer can take in."""

from __future__ import annotations

import ast
import copy
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from scripts import walks

import gangline
import gangline_webhooks

REPOSITORY = Path(__file__).parents[1]
PACKAGE = Path(gangline.__path__[0])
ROOTS = {package.__name__: Path(package.__path__[0]) for package in (gangline, gangline_webhooks)}
#: modules beside each other in one package from which on its docstring says why
MOST_MODULES = 12
REASON = "More than a dozen modules"
#: what the engine must not reach: clocks, processes, files, serialisation of live objects
OUTSIDE = {
    "time",
    "pickle",
    "os",
    "io",
    "subprocess",
    "threading",
    "asyncio",
    "socket",
    "pathlib",
    "logging",
}


@cache
def modules() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name, root in ROOTS.items():
        for path in root.rglob("*.py"):
            parts = [name, *path.relative_to(root).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(path: Path) -> set[str]:
    """Every dotted name that a module imports, wherever in it: at its top, in a function, for types only."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@cache
def graph() -> dict[str, set[str]]:
    """Module -> modules of ours that it imports; `from package import name` counts as the module where that is one."""
    known = modules()
    return {
        module: {target for name in imports(path) if (target := _module_of(name, known)) is not None} - {module}
        for module, path in known.items()
    }


def _module_of(name: str, known: dict[str, Path]) -> str | None:
    return name if name in known else next((name for name in [name.rpartition(".")[0]] if name in known), None)


def test_no_import_goes_round_in_a_circle() -> None:
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_a_circle_would_be_found() -> None:
    circular = copy.deepcopy(graph())
    circular["gangline.engine.model.units"].add("gangline.engine.engine")
    with pytest.raises(CycleError):
        TopologicalSorter(circular).prepare()


def test_a_package_with_many_modules_says_why() -> None:
    crowded = [
        package
        for package in {path.parent for path in modules().values()}
        if sum(path.name not in ("__init__.py", "__main__.py") for path in package.glob("*.py")) > MOST_MODULES
    ]
    assert crowded
    for package in crowded:
        assert REASON in (ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""), package


def test_every_package_says_what_it_is() -> None:
    silent = [
        name
        for name, path in modules().items()
        if path.name == "__init__.py" and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


def test_the_engine_reaches_nothing_outside_itself() -> None:
    for module, path in modules().items():
        if module.startswith("gangline.engine"):
            assert not {name.partition(".")[0] for name in imports(path)} & OUTSIDE, module


def test_the_official_client_is_loaded_in_a_process_of_its_own() -> None:
    """Its import costs each process a tenth of a second and tens of megabytes (docs/architecture.md)."""
    loading = {module for module, path in modules().items() for name in imports(path) if is_of("kubernetes", name)}
    assert loading == {"gangline.kube.oidc", "gangline.console.commands.admin.probe"}, "the latter is a process, too"
    assert not [module for module, targets in graph().items() if "gangline.kube.oidc" in targets]


def is_of(package: str, name: str) -> bool:
    return name == package or name.startswith(f"{package}.")


# --- names of modules in docstrings, comments and pages ---

#: `control.writes.writer`, `engine.model.Heal`, `gangline.kube.client`: a dotted name of ours, as code
DOTTED = re.compile(r"`((?:[a-z_]+\.)+\w+)`")
#: also names of fields and files: `forecast.flavor`, `image.tag`, `replay.json`, `tls.crt`
AMBIGUOUS = {"forecast", "image", "replay", "tls", "ui"}
#: a group of entry points, not a module
ENTRY_POINTS = "gangline.scorers"
#: tables of traces of Alibaba and Microsoft
FOREIGN_NAMES = {"pai_task_table", "cluster_job_log"}


def test_every_module_that_prose_names_exists() -> None:
    known = modules()
    pages = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    prose = [*known.values(), *(page for page in pages if page.name != "CHANGELOG.md")]
    named = {(path, name) for path in prose for name in module_names(path.read_text())}
    assert len(named) > 50
    missing = [f"{path.relative_to(REPOSITORY)}: `{name}`" for path, name in sorted(named) if not names_something(name)]
    assert not missing, missing


def test_every_name_in_snake_case_that_prose_names_is_used() -> None:
    """Modules and functions in backticks without a package: each stands somewhere in the code, too."""
    texts = {path: path.read_text() for path in modules().values()}
    used = {word for text in texts.values() for word in re.findall(r"\w+", re.sub(r"`[^`\n]*`", "", text))}
    used |= {path.stem for path in texts}
    named = {(path, name) for path, text in texts.items() for name in re.findall(r"`(\w*[a-z]_\w+)`", text)}
    assert len(named) > 100
    unused = {name: path.relative_to(REPOSITORY) for path, name in named if name not in used}
    assert unused.keys() == FOREIGN_NAMES, unused


def test_a_module_that_moved_would_be_found() -> None:
    assert module_names("`control.mirror`, `engine.model.Heal`, `spec.x`, `api.readSettings`") == {
        "control.mirror",
        "engine.model.Heal",
    }
    assert names_something("engine.model.Heal") and names_something("gangline.control.controller.Controller.act")
    assert not names_something("control.mirror") and not names_something("engine.model.Hael")


def module_names(text: str) -> set[str]:
    """Dotted names that begin with one of our packages, but for fields of the API (`api.readSettings`)."""
    first = {name.split(".")[1] for name in modules() if "." in name} - AMBIGUOUS | set(ROOTS)
    found = {name for name in DOTTED.findall(text) if name.partition(".")[0] in first}
    return {name for name in found if not re.search(r"\.[a-z]+[A-Z]", name)} - {ENTRY_POINTS}


def names_something(name: str) -> bool:
    """Whether it is a module, or a name in one; packages above it may be left out (`jobs.job_rules`)."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = ".".join(parts[:end])
        for known, path in modules().items():
            if f".{known}".endswith(f".{module}") and (end == len(parts) or parts[end] in names_in(path)):
                return True
    return False


@cache
def names_in(path: Path) -> frozenset[str]:
    """What a module defines at any depth, sets or imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                found.add(node.name)
            case ast.Name(ctx=ast.Store()):
                found.add(node.id)
            case ast.Import() | ast.ImportFrom():
                found.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
            case _:
                pass
    return frozenset(found)


# --- docs/architecture.md against the code ---

PAGE = REPOSITORY / "docs" / "architecture.md"
HEADINGS = {
    "## One job, from `kubectl apply` to a running gang": 15,
    "## A healing, from the failed node to the running gang": 12,
    "## One question, from `gangline why` to its answer": 11,
}


def section(heading: str) -> str:
    _, _, rest = PAGE.read_text().partition(heading)
    assert rest, heading
    return rest.partition("\n## ")[0].partition("\n### ")[0]


@pytest.mark.parametrize(("heading", "most"), HEADINGS.items())
def test_the_way_through_the_code_is_short_and_every_file_on_it_exists(heading: str, most: int) -> None:
    text = section(heading)
    stops = re.findall(r"^(\d+)\. ", text, re.MULTILINE)
    assert stops == [str(number) for number in range(1, len(stops) + 1)] and 5 < len(stops) <= most
    paths = paths_in(text)
    assert len(paths) >= len(stops)
    for path in paths:
        assert (PACKAGE / path).is_file() or (REPOSITORY / path).is_file(), path


def paths_in(text: str) -> list[str]:
    return re.findall(r"`([\w/]+\.py)`", text)


def test_every_walk_of_the_page_is_played() -> None:
    assert {f"## {walk.heading}" for walk in walks.ON_THE_PAGE} == HEADINGS.keys()


@pytest.mark.parametrize("walk", walks.WALKS, ids=lambda walk: walk.heading)
def test_calls_go_through_every_file_that_a_walk_names(walk: walks.Walk) -> None:
    """Played in this process (`scripts/walks.py`): each file is one in which a stop is, or one of its callers."""
    trace = walks.walked(walk)
    if walk in walks.ON_THE_PAGE:
        named = {path for path in paths_in(section(f"## {walk.heading}")) if path.partition("/")[0] in walks.COUNTED}
        assert named - set(trace.counted) == walk.not_played.keys()
        assert {stop for stop in walk.stops if stop.partition("/")[0] in walks.COUNTED} <= named
    assert len(trace.counted) < len(trace.entered) / 2, "helpers that everything uses are on no walk"


@pytest.mark.parametrize(
    ("heading", "package"),
    [
        ("## The packages", ROOTS["gangline"]),
        ("### Inside `engine`", PACKAGE / "engine"),
        ("### Inside `control`", PACKAGE / "control"),
    ],
)
def test_the_tables_have_every_package_and_no_other(heading: str, package: Path) -> None:
    rows = [line.split("|")[1] for line in section(heading).splitlines() if line.startswith("| `")]
    named = {name.removeprefix("gangline.") for row in rows for name in re.findall(r"`([\w.]+)`", row)} - set(ROOTS)
    there = {path.stem for path in package.glob("*.py")} | {path.parent.name for path in package.glob("*/__init__.py")}
    assert named == there - {"__init__"}


def test_the_engine_has_one_unit_of_time() -> None:
    """What a manifest states in seconds is read in milliseconds, by a property of the model."""
    for path in sorted((PACKAGE / "engine").rglob("*.py")):
        if path.is_relative_to(PACKAGE / "engine" / "model"):
            continue
        read = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert {name for name in read if name.endswith("_seconds")} == set(), path
