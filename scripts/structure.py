"""Figures about the structure of the code: how much there is to read, and how much of it one has to read together.

    .venv/bin/python -m scripts.structure [ROOT]

prints them as a table, so that two versions can be compared: those of another checkout with its ROOT, without the files on the
walks of docs/architecture.md, which only this checkout can play (`scripts/walks.py`).
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("operator/gangline", "webhooks/gangline_webhooks")
#: files of at most so many lines count as small
SMALL = 60
#: the parts of an object that its views have names for (`gangline.objects`)
PARTS = frozenset(("metadata", "spec", "status"))
#: where objects of the cluster are read through these views
VIEWED = ("operator/gangline/control", "operator/gangline/jobs")


def files(root: Path, *folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (root / folder).rglob("*.py"))


@lru_cache(maxsize=4096)
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


# --- imports ----------------------------------------------------------------------------------------------------------


def imports(root: Path) -> dict[str, set[str]]:
    """Module -> the modules of ours that it imports, for types and inside functions, too."""
    known = {_name(root, path): path for path in files(root, *PACKAGES)}
    found: dict[str, set[str]] = {}
    for module, path in known.items():
        targets: set[str] = set()
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Import):
                targets.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    targets.add(name if name in known else node.module)
        found[module] = (targets & known.keys()) - {module}
    return found


def _name(root: Path, path: Path) -> str:
    folder = next(root / each for each in PACKAGES if path.is_relative_to(root / each))
    parts = [folder.name, *path.relative_to(folder).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def longest_chain(graph: dict[str, set[str]]) -> list[str]:
    """The longest path of imports. The graph has no circle (`tests/test_structure.py`)."""
    best: dict[str, list[str]] = {}

    def chain(module: str) -> list[str]:
        if module not in best:
            best[module] = [module]  # an empty package may be reached from inside itself
            best[module] = [module, *max((chain(each) for each in sorted(graph[module])), key=len, default=[])]
        return best[module]

    sys.setrecursionlimit(10_000)
    return max((chain(module) for module in sorted(graph)), key=len)


# --- what is written --------------------------------------------------------------------------------------------------


def raw_accesses(root: Path) -> int:
    """How often metadata, spec or status of an object is read as JSON instead of by a view's name."""
    return sum(_is_raw(node) for path in files(root, *VIEWED) for node in ast.walk(tree(path)))


def _is_raw(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Constant) and node.slice.value in PARTS
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"):
        return False
    return bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value in PARTS


def classes(root: Path) -> dict[str, list[str]]:
    """Name of a class -> the modules that define one of that name."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in files(root, *PACKAGES):
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(_name(root, path))
    return found


def condition_helpers(root: Path) -> list[str]:
    """Functions of `control` and `jobs` that look for a condition by its type."""
    return [
        f"{_name(root, path)}.{node.name}"
        for path in files(root, *VIEWED, "operator/gangline/objects", "operator/gangline/kube")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef) and _looks_for_a_type(node)
    ]


def _looks_for_a_type(function: ast.FunctionDef) -> bool:
    """Whether the function compares the type of each of some rows with one of its parameters."""
    parameters = {each.arg for each in function.args.args}
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and len(node.comparators) == 1:
            sides = (node.left, node.comparators[0])
            if any(_is_type(side) for side in sides) and any(
                isinstance(side, ast.Name) and side.id in parameters for side in sides
            ):
                return True
    return False


def _is_type(node: ast.expr) -> bool:
    key = node.args[0] if isinstance(node, ast.Call) and node.args else getattr(node, "slice", None)
    return isinstance(key, ast.Constant) and key.value == "type"


def attributes_set_outside(root: Path) -> Iterator[str]:
    """Assignments to attributes of other objects than `self` in `control/controller.py`, as text."""
    for path in files(root, "operator/gangline/control"):
        if path.name == "controller.py":
            for node in ast.walk(tree(path)):
                targets = node.targets if isinstance(node, ast.Assign) else []
                for target in (each for group in targets for each in _flat(group)):
                    if isinstance(target, ast.Attribute) and ast.unparse(target.value) != "self":
                        yield ast.unparse(target)


def _flat(target: ast.expr) -> list[ast.expr]:
    return list(target.elts) if isinstance(target, ast.Tuple) else [target]


# --- the table --------------------------------------------------------------------------------------------------------


def table(root: Path) -> list[tuple[str, str]]:
    every = files(root, *PACKAGES)
    sizes = [lines(path) for path in every]
    by_package: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for path, size in zip(every, sizes, strict=True):
        parts = path.relative_to(root).parts
        name = ".".join(parts[1:3]) if len(parts) > 3 else parts[1]
        by_package[name] += size
        counts[name] += 1
    chain = longest_chain(imports(root))
    repeated = {name: modules for name, modules in classes(root).items() if len(modules) > 1}
    small = sum(size <= SMALL for size in sizes)
    rows = [
        ("lines", f"{sum(sizes):,}"),
        ("files", str(len(every))),
        ("lines per file, mean", f"{sum(sizes) / len(sizes):.0f}"),
        (f"files of at most {SMALL} lines", f"{small} ({100 * small // len(sizes)} %)"),
        ("longest import chain", f"{len(chain)} modules"),
        ("raw accesses in control and jobs", str(raw_accesses(root))),
        ("helpers that look for a condition", str(len(condition_helpers(root)))),
        ("class names that mean several things", f"{len(repeated)}"),
        ("attributes set on finished parts", str(len(list(attributes_set_outside(root))))),
    ]
    return rows + [(f"· {name}", f"{by_package[name]:,} in {counts[name]}") for name in sorted(by_package)]


def main() -> None:
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    rows = table(root)
    if root == ROOT:
        from scripts import walks  # the operator and the console

        rows += walks.figures()
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")


if __name__ == "__main__":
    main()
