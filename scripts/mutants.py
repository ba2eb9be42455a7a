"""Mutation testing of the engine: `make mutants`.

A mutant is the engine with one small fault, such as `<` in place of `<=`. It is caught when a test of tests/engine fails. Of all
mutants that the tester can make, SAMPLE are drawn with SEED: the same ones for the same engine, and a larger sample contains a
smaller one. Results are kept in `.mutants/`, so that a run which was ended goes on where it was; those that survived are tried
again once the tests have changed. The faults are made in copies of the tree, never in the tree itself.

Survivors that no test can distinguish from the original are listed, with the reason, in tests/engine/equivalent_mutants.toml.

The exit status is 1 where less than 90 % of the sample, the equivalent ones left out, was caught.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import itertools
import queue
import random
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import attrs
from cosmic_ray.commands import init
from cosmic_ray.modules import find_modules
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkItem, WorkResult

ROOT: Final = Path(__file__).parents[1]
WORK: Final = ROOT / ".mutants"
ENGINE: Final = Path("operator/gangline/engine")
TESTS: Final = Path("tests/engine")
EQUIVALENT: Final = TESTS / "equivalent_mutants.toml"
#: seconds of all tests with one mutant, ten times what they take, and of a single one
MOST_SECONDS, MOST_SECONDS_PER_TEST = 600, 120
GOAL: Final = 0.9

#: Faults that somebody could make. Of a comparison its neighbour and its negation, as the others are caught where these are.
OPERATORS: Final = frozenset(
    f"core/{name}"
    for name in (
        *("ReplaceComparisonOperator_" + pair for pair in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_GtE", "Gt_LtE")),
        *("ReplaceComparisonOperator_" + pair for pair in ("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is")),
        *("ReplaceBinaryOperator_" + pair for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul")),
        *("ReplaceBinaryOperator_" + pair for pair in ("BitOr_BitAnd", "BitAnd_BitOr")),
        *("ReplaceUnaryOperator_" + pair for pair in ("Delete_Not", "Delete_USub")),
        *("ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd", "AddNot"),
        *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ZeroIterationForLoop"),
        *("ExceptionReplacer", "NumberReplacer"),
    )
)


def main(args: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=300, help="so many mutants")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--workers", type=int, default=2, help="so many at a time")
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"), help="what runs the tests")
    parser.add_argument("--only", default="", help="only mutants of modules in whose path this is found")
    chosen = parser.parse_args(args)

    session = WORK / f"{chosen.seed}-{digest(ENGINE)}"
    session.mkdir(parents=True, exist_ok=True)
    with use_db(str(session / "session.sqlite")) as results:
        draw(results, chosen.sample, chosen.seed, chosen.only)
        retry_survivors(session)
        run(results, session, chosen.workers, chosen.python)
        return report([(item.mutations[0], result) for item, result in results.completed_work_items])


def digest(folder: Path) -> str:
    """Of all Python below this folder of the tree: eight hexadecimal digits."""
    found = hashlib.sha256()
    for path in sorted((ROOT / folder).rglob("*.py")):
        found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:8]


# --- which mutants ----------------------------------------------------------------------------------------------------


def draw(results: WorkDB, sample: int, seed: int, only: str) -> None:
    """Adds to the session what it lacks of a sample of this size."""
    known = {item.job_id for item in results.work_items}
    mutants = sorted((mutant for mutant in all_mutants() if only in str(mutant.module_path)), key=name)
    random.Random(seed).shuffle(mutants)
    drawn = {name(mutant): mutant for mutant in mutants[:sample]}
    print(f"{len(mutants):,} mutants, of which {len(drawn)} are drawn (seed {seed})", file=sys.stderr)
    results.add_work_items(WorkItem.single(job, mutant) for job, mutant in drawn.items() if job not in known)


def all_mutants() -> Iterable[MutationSpec]:
    """What the tester can make of the engine, without the operators left out and without annotations."""
    modules = list(find_modules([ROOT / ENGINE]))
    annotations = {path: set(annotated_lines_and_columns(ast.parse(path.read_text()))) for path in modules}
    with use_db(":memory:") as everything:
        init(modules, everything, {})
        for item in everything.work_items:
            mutant = item.mutations[0]
            if mutant.operator_name not in OPERATORS:
                continue
            if any(start <= mutant.start_pos < end for start, end in annotations[mutant.module_path]):
                continue
            yield attrs.evolve(mutant, module_path=mutant.module_path.relative_to(ROOT))


Position = tuple[int, int]


def annotated_lines_and_columns(tree: ast.Module) -> Iterable[tuple[Position, Position]]:
    """From where to where there are annotations and aliases of types: they are never evaluated, or decide nothing."""
    for node in ast.walk(tree):
        for part in types_of(node):
            assert part.end_lineno is not None and part.end_col_offset is not None
            yield (part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)


def types_of(node: ast.AST) -> Iterable[ast.expr]:
    if isinstance(node, ast.arg) and node.annotation is not None:
        yield node.annotation
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
        yield node.returns
    elif isinstance(node, ast.AnnAssign):
        yield node.annotation
        if "TypeAlias" in ast.dump(node.annotation) and node.value is not None:
            yield node.value
    elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        yield node.test


def name(mutant: MutationSpec) -> str:
    line, column = mutant.start_pos
    return f"{mutant.module_path}:{line}:{column} {mutant.operator_name} {mutant.occurrence}"


# --- running the tests with each --------------------------------------------------------------------------------------


def retry_survivors(session: Path) -> None:
    """Forgets that mutants survived tests that were others than today's."""
    stamp, tests = session / "tests", digest(Path("tests"))
    if stamp.exists() and stamp.read_text() != tests:
        with closing(sqlite3.connect(session / "session.sqlite")) as database, database:
            database.execute(
                "DELETE FROM work_results WHERE test_outcome IS NOT ?",
                [TestOutcome.KILLED.name],
            )
    stamp.write_text(tests)


def run(results: WorkDB, session: Path, workers: int, python: str) -> None:
    """Every mutant that has no result yet, so many at a time, each in a copy of the tree."""
    pending = sorted(results.pending_work_items, key=lambda item: item.job_id)
    random.Random(0).shuffle(pending)  # so that what was done by the time it is ended is a sample, too
    if not pending:
        return
    copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for number in range(workers):
        copies.put(fresh_copy(session / f"tree-{number}"))
    check_that_tests_pass(copies, python)

    def tried(item: WorkItem) -> WorkResult:
        copy = copies.get()
        mutants = [attrs.evolve(mutant, module_path=copy / mutant.module_path) for mutant in item.mutations]
        result = mutate_and_test(mutants, command(copy, python), MOST_SECONDS)
        copies.put(copy)
        return result

    pool = ThreadPoolExecutor(workers)
    try:
        running = {pool.submit(tried, item): item for item in pending}
        for number, future in enumerate(as_completed(running), start=1):
            item, result = running[future], future.result()
            results.set_result(item.job_id, result)
            outcome = "caught" if result.is_killed else "SURVIVED"
            print(f"{number}/{len(pending)} {outcome:<8} {name(item.mutations[0])}", file=sys.stderr, flush=True)
    finally:
        pool.shutdown(cancel_futures=True)


def fresh_copy(into: Path) -> Path:
    """The files of the tree that git knows or would know, as they are now."""
    shutil.rmtree(into, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for file in filter(None, listed.split("\0")):
        if (ROOT / file).is_file():
            (into / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, into / file)
    return into


def command(copy: Path, python: str) -> str:
    """How the engine's tests are run in a copy; the first failure ends them. Recorded histories, which catch most, go first.

    As on CI, hypothesis draws the same examples each time and remembers none.
    """
    files = sorted(
        (copy / TESTS).glob("test_*.py"),
        key=lambda file: ("histories" not in file.stem, "propert" in file.stem, "vectors" in file.stem, file),
    )
    tests = shlex.join(str(file.relative_to(copy)) for file in files)
    pytest = f"{shlex.quote(python)} -m pytest -x -q -p no:cacheprovider --timeout {MOST_SECONDS_PER_TEST} {tests}"
    inside = f"cd {shlex.quote(str(copy))} && CI=true PYTHONPATH=operator:webhooks exec {pytest}"
    return f"bash -c {shlex.quote(inside)}"


def check_that_tests_pass(copies: queue.SimpleQueue[Path], python: str) -> None:
    """Without a fault, that is: else every mutant would seem to be caught."""
    copy = copies.get()
    done = subprocess.run(shlex.split(command(copy, python)), check=False, capture_output=True, text=True)
    copies.put(copy)
    if done.returncode:
        sys.exit(f"error: the tests fail without any mutant:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


# --- what came of it --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Equivalent:
    """A mutant that behaves as the original, by its file and its two lines, and why it does."""

    file: str
    line: str
    becomes: str
    why: str


def report(outcomes: Sequence[tuple[MutationSpec, WorkResult]]) -> int:
    """A line per room on stdout, then the survivors; the exit status."""
    explained = {(each.file, each.line, each.becomes): each.why for each in read_equivalent()}
    rooms: defaultdict[str, list[tuple[MutationSpec, WorkResult]]] = defaultdict(list)
    for mutant, result in outcomes:
        rooms[room_of(mutant)].append((mutant, result))

    print(f"{'room':<14}{'mutants':>8}{'caught':>8}{'equivalent':>12}{'survived':>10}{'caught %':>10}")
    for room, found in sorted(rooms.items()):
        print(summary(room, found, explained))
    print(summary("all", outcomes, explained))
    for mutant, result in sorted(outcomes, key=lambda outcome: name(outcome[0])):
        if not result.is_killed:
            before, after = changed_lines(result)
            why = explained.get((str(mutant.module_path), before, after))
            print(f"\n{name(mutant)}  {mutant.definition_name}\n  - {before}\n  + {after}")
            if why:
                print(f"  equivalent: {why}")
    counts = count(outcomes, explained)
    return int(counts.caught < GOAL * (counts.mutants - counts.equivalent))


@dataclass(frozen=True)
class Counts:
    mutants: int
    caught: int
    equivalent: int

    @property
    def survived(self) -> int:
        return self.mutants - self.caught - self.equivalent


def count(found: Sequence[tuple[MutationSpec, WorkResult]], explained: dict[tuple[str, str, str], str]) -> Counts:
    caught = sum(result.is_killed for _, result in found)
    equivalent = sum(
        (str(mutant.module_path), *changed_lines(result)) in explained
        for mutant, result in found
        if not result.is_killed
    )
    return Counts(len(found), caught, equivalent)


def summary(
    room: str, found: Sequence[tuple[MutationSpec, WorkResult]], explained: dict[tuple[str, str, str], str]
) -> str:
    counts = count(found, explained)
    share = counts.caught / max(1, counts.mutants - counts.equivalent)
    return f"{room:<14}{counts.mutants:>8}{counts.caught:>8}{counts.equivalent:>12}{counts.survived:>10}{share:>10.1%}"


def room_of(mutant: MutationSpec) -> str:
    """The package inside the engine, or the file at its top."""
    return mutant.module_path.relative_to(ENGINE).parts[0]


def changed_lines(result: WorkResult) -> tuple[str, str]:
    """The line that was replaced and what replaced it, without the space around them; several lines are joined."""
    lines = (result.diff or "").splitlines()
    body = list(itertools.dropwhile(lambda line: not line.startswith("@@"), lines))[1:]

    def joined(sign: str) -> str:
        return " ".join(filter(None, (line[1:].strip() for line in body if line.startswith(sign))))

    return joined("-"), joined("+")


def read_equivalent() -> list[Equivalent]:
    path = ROOT / EQUIVALENT
    return [Equivalent(**entry) for entry in tomllib.loads(path.read_text())["mutant"]] if path.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
