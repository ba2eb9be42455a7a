"""A CPU profiler: a process's Python stack, sampled while it computes.

    python -m bench.sampler STACKS -- admin operator --kubeconfig …

runs `gangline admin operator …` and at the end writes one line per distinct stack, outermost frame first, and its count:
`file:function:line;…  count`. One sample per 5 ms of CPU; time spent waiting does not count.
"""

from __future__ import annotations

import atexit
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

PERIOD = 0.005  # seconds of CPU
DEPTH = 60


class Sampler:
    def __init__(self, out: Path) -> None:
        self._out = out
        self._stacks: Counter[tuple[tuple[str, str, int], ...]] = Counter()

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self._sample)
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, PERIOD, PERIOD)
        atexit.register(self.write)

    def _sample(self, _: int, frame: FrameType | None) -> None:
        stack: list[tuple[str, str, int]] = []
        while frame is not None and len(stack) < DEPTH:
            code = frame.f_code
            stack.append((code.co_filename, code.co_qualname, frame.f_lineno))
            frame = frame.f_back
        self._stacks[tuple(reversed(stack))] += 1

    def write(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        lines = [
            ";".join(f"{_short(file)}:{name}:{line}" for file, name, line in stack) + f" {count}"
            for stack, count in self._stacks.most_common()
        ]
        self._out.write_text("\n".join(lines) + "\n")


def _short(file: str) -> str:
    """The path from the package's own directory on."""
    for root in ("/operator/", "/webhooks/", "/site-packages/", "/lib/python"):
        if root in file:
            return file.rpartition(root)[2].replace(";", "_")
    return file


def shares(stacks: Path, room: str) -> float:
    """The share of all samples with a frame whose file starts with `room`, such as "gangline/engine/"."""
    total = found = 0
    for line in stacks.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        total += int(count)
        if any(frame.startswith(room) for frame in stack.split(";")):
            found += int(count)
    return found / total if total else 0.0


def top(stacks: Path, *, limit: int = 40) -> list[str]:
    """The functions with most samples: own share, share with all they call, name."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    total = 0
    for line in stacks.read_text().splitlines():
        stack, _, text = line.rpartition(" ")
        count = int(text)
        total += count
        names = [frame.rpartition(":")[0] for frame in stack.split(";")]
        own[names[-1]] += count
        for name in set(names):
            whole[name] += count
    return [f"{own[n] / total:6.1%} {c / total:6.1%}  {n}" for n, c in whole.most_common(limit)] if total else []


def main() -> None:
    out, separator, *arguments = sys.argv[1:]
    if separator != "--":
        raise SystemExit("usage: python -m bench.sampler STACKS -- COMMAND …")
    from gangline.console.cli import main as command

    sys.argv = ["gangline", *arguments]
    Sampler(Path(out)).start()
    command()


if __name__ == "__main__":
    main()
