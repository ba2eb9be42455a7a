"""Coverage-guided fuzzing of every target: `python -m tests.fuzz.coverage --seconds 60 [TARGET …]` (`make fuzz-coverage`).

One process per target, one after the other, in which Gangline's bytecode counts its edges. Inputs that reach something new are
kept in `.fuzz/TARGET`, findings in `.fuzz/findings`; a line per target tells of them, and the exit status is 1 if there are any.
`--keep` makes of what was kept the small corpus that `make test` replays.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import logging
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tests.fuzz import corpus

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

ROOT = Path(__file__).parents[2]
WORK = ROOT / ".fuzz"
FINDINGS = WORK / "findings"
#: one input may take so many seconds, and the process so many MiB: more is a finding
SECONDS_PER_INPUT, MOST_MEMORY = 10, 2048
#: of one target
MOST_FINDINGS = 20
#: characters of the longest name of a target
WIDTH = 107
#: how libFuzzer says what it has seen
_EDGES = re.compile(r"\bcov: (\d+)")
_DONE = re.compile(r"stat::number_of_executed_units:\s*(\d+)|^#(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What came of one target: inputs tried, edges of the bytecode that were reached, inputs kept, and files with findings."""

    name: str
    tried: int
    edges: int
    kept: int
    findings: tuple[Path, ...]

    def __str__(self) -> str:
        counts = f"{self.tried:>9,} inputs {self.edges:>6,} edges {self.kept:>5,} kept {len(self.findings):>3} findings"
        return f"{self.name:<{WIDTH}} {counts}"


def main(args: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.coverage", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help="all in whose name this pattern is found; none: every target"
    )
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--keep", action="store_true", help="do not fuzz: make tests/fuzz/corpus anew of what was kept")
    said = parser.parse_args(args)
    if said.keep:
        return _keep(_chosen(said.targets))
    if importlib.util.find_spec("atheris") is None:
        sys.exit("coverage-guided fuzzing needs atheris, which has no wheel for this platform and version of Python")
    return _fuzz_all(_chosen(said.targets, instrumented=True), said.seconds)


def _chosen(patterns: Sequence[str], *, instrumented: bool = False) -> list[Target]:
    with _instrumented() if instrumented else contextlib.nullcontext():
        from tests.fuzz.targets import targets

        found = targets()
    names = [name for name in found if not patterns or any(re.search(pattern, name) for pattern in patterns)]
    if not names:
        sys.exit(f"no target is named like {' or '.join(patterns)}; there are:\n" + "\n".join(found))
    return [found[name] for name in names]


@contextlib.contextmanager
def _instrumented() -> Iterator[None]:
    """What is imported of Gangline counts its edges."""
    import atheris

    names_of_modules = contextlib.redirect_stderr(io.StringIO())
    with names_of_modules, atheris.instrument_imports(include=["gangline", "gangline_webhooks"]):
        yield


def _keep(targets: Sequence[Target]) -> int:
    for target in targets:
        print(f"{target.name:<{WIDTH}} {corpus.keep(target, WORK / target.name):>6,} bytes", flush=True)
    return 0


def _fuzz_all(targets: Sequence[Target], seconds: int) -> int:
    """1 if something was found."""
    found: list[Path] = []
    for target in targets:
        outcome = _fuzz(target, seconds)
        print(outcome, flush=True)
        found += outcome.findings
    for file in found:
        report = file.with_suffix(".txt")
        print(f"\n{file.relative_to(ROOT)}", report.read_text() if report.exists() else "", sep="\n")
    return 1 if found else 0


def _fuzz(target: Target, seconds: int) -> Outcome:
    """In a process of its own: libFuzzer ends it, and a finding may."""
    kept, log = WORK / target.name, WORK / f"{target.name}.log"
    for folder in (kept, FINDINGS):
        folder.mkdir(parents=True, exist_ok=True)
    before = set(FINDINGS.iterdir())
    with tempfile.TemporaryDirectory() as seeds:
        for number, data in enumerate([*target.seeds(), *corpus.inputs(target.name)]):
            (Path(seeds) / str(number)).write_bytes(data[: target.longest])
        child = os.fork()
        if not child:
            _inside(target, seconds, kept, seeds, log)
        os.waitpid(child, 0)
    said = log.read_text(errors="replace")
    tried = [int(one or other) for one, other in _DONE.findall(said)]
    if not tried:
        sys.exit(f"{target.name} was not fuzzed:\n{said[-2000:]}")
    found = sorted(file for file in set(FINDINGS.iterdir()) - before if file.suffix != ".txt")
    edges = max(map(int, _EDGES.findall(said)), default=0)
    return Outcome(target.name, max(tried), edges, len(list(kept.iterdir())), tuple(found))


def _inside(target: Target, seconds: int, kept: Path, seeds: str, log: Path) -> NoReturn:
    import atheris

    with log.open("wb") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    findings = f"{FINDINGS}/{target.name}-{os.getpid()}-"
    options = {
        "max_total_time": seconds,
        "max_len": target.longest,
        "len_control": 20,
        "timeout": SECONDS_PER_INPUT,
        "rss_limit_mb": MOST_MEMORY,
        "artifact_prefix": findings,
        "print_final_stats": 1,
    }
    given = [f"-{option}={value}" for option, value in options.items()]
    atheris.Setup([target.name, *given, str(kept), seeds], _Judge(target.run, findings))
    atheris.Fuzz()
    os._exit(0)


class _Judge:
    """Tries an input. Findings are noted, one of each sort, and the fuzzer goes on."""

    def __init__(self, run: Callable[[bytes], object], findings: str) -> None:
        self._run = run
        self._findings = findings
        self._seen: set[str] = set()
        self._last_error = _LastError()
        logging.basicConfig(level=logging.ERROR, handlers=[self._last_error], force=True)

    def __call__(self, data: bytes) -> None:
        self._last_error.last = ""
        try:
            self._run(data)
        except Exception as error:
            self._note(data, error)

    def _note(self, data: bytes, error: Exception) -> None:
        place = "".join(traceback.format_tb(error.__traceback__)[-1:]) + self._last_error.last[-300:]
        sort = f"{type(error).__name__} {place} {re.sub(r'[^a-z ]', '', str(error).lower())[:20]}"
        if sort in self._seen or len(self._seen) > MOST_FINDINGS:
            return
        self._seen.add(sort)
        file = Path(f"{self._findings}{len(self._seen)}")
        file.write_bytes(data)
        file.with_suffix(".txt").write_text(
            "".join([*traceback.format_exception(error), self._last_error.last])[-6000:]
        )


class _LastError(logging.Handler):
    """The last error that was logged: where something broke that was answered in words all the same."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
