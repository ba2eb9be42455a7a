"""Replays parts of the audit record in a separate process of low priority, within bounds of time and memory.

The operator's process passes open files, so a rotation meanwhile changes nothing, and gets JSON back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from gangline import bounded, child_process
from gangline.control.audit import decision_inputs
from gangline.control.audit.audit_check import AuditResult, check, read_part
from gangline.control.audit.audit_log import Entry
from gangline.control.audit.decision_index import RecordPart
from gangline.kube.resources import Json

#: below all other processes of the operator
_NICE: Final = 19
#: bytes of memory that a replay may take
MOST_MEMORY: Final = 2 * 2**30
#: seconds for the inputs of one decision, less than one answer may take, for a check of the whole record
INPUTS_WITHIN: Final = 35.0
CHECK_WITHIN: Final = 1800.0
#: … for whether preemptions could have lost less; the process ends by itself after this part of it, with what it has until then
CHEAPER_WITHIN: Final = 300.0
_OWN_END: Final = 0.9
#: how often a check asks for missed starts, in milliseconds: with thousands of workloads that costs seconds each time
ASKED: Final = 3600_000
#: decisions of a round that are listed as different
MOST_NAMES: Final = 50


class ReplayError(Exception):
    """The replay did not come to an end; the text says why."""


async def inputs(part: RecordPart, place: int) -> Json:
    """See `decision_inputs.inputs`. Raises decision_inputs.NotRepeatableError, ReplayError."""
    found = await _replayed("inputs", [part], [[place]], INPUTS_WITHIN)
    if "notRepeatable" in found:
        raise decision_inputs.NotRepeatableError(found["notRepeatable"])
    return found


async def checked(parts: Sequence[RecordPart]) -> Json:
    """The result of deciding everything again; instants and delays in seconds. Raises ReplayError."""
    return await _replayed("check", parts, [], CHECK_WITHIN)


async def cheaper(parts: Sequence[RecordPart], places: Sequence[Sequence[int]]) -> list[list[Json]]:
    """See `decision_inputs.cheaper`. Raises ReplayError."""
    return await _replayed("cheaper", parts, places, CHEAPER_WITHIN)


async def _replayed(work: str, parts: Sequence[RecordPart], places: Sequence[Sequence[int]], within: float) -> Any:
    """Run a process for a work. It ends with whoever waits for it."""
    descriptors = {part.file.descriptor for part in parts}
    asked = [work, [(part.file.descriptor, part.begin, part.end) for part in parts], places, within]
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gangline.control.audit.replay_process",
            orjson.dumps(asked).decode(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=child_process.environment(),
            pass_fds=tuple(descriptors),
        )
    except OSError as error:
        raise ReplayError(f"the record could not be replayed: {error}") from error
    try:
        async with asyncio.timeout(within):
            answer, trouble = await process.communicate()
    except TimeoutError:
        raise ReplayError(f"the replay took more than {within:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        said = trouble.decode(errors="replace").strip().splitlines() or [f"exit status {process.returncode}"]
        raise ReplayError(f"the record could not be replayed: {bounded.shown(said[-1])}")
    return orjson.loads(answer)  # written by our own child process


# --- in the other process ---------------------------------------------------------------------------------------------


def answer_to(
    work: str, parts: Sequence[tuple[int, int, int]], places: Sequence[Sequence[int]], within: float = CHECK_WITHIN
) -> Any:
    """The answer of a replay of these parts of open files, each from one byte to another."""
    outcome = AuditResult()
    if work == "cheaper":
        end = time.monotonic() + _OWN_END * within
        return decision_inputs.cheaper(
            (read_part(*part, outcome) for part in parts), places, lambda: time.monotonic() > end
        )
    entries = _entries(parts, outcome)
    if work == "check":
        return _as_json(check(entries, outcome, ASKED))
    try:
        return decision_inputs.inputs(entries, places[0][0])
    except decision_inputs.NotRepeatableError as error:
        return {"notRepeatable": str(error)}


def _entries(parts: Sequence[tuple[int, int, int]], outcome: AuditResult) -> Iterator[Entry]:
    for part in parts:
        yield from read_part(*part, outcome)


def _as_json(outcome: AuditResult) -> Json:
    incomplete = ""
    if outcome.gaps:
        incomplete = (
            f"The record has {outcome.gaps} gaps: what was decided between one and the next start is not checked."
        )
    return {
        "from": outcome.first / 1000,
        "to": outcome.last / 1000,
        "runs": outcome.runs,
        "rounds": outcome.rounds,
        "decisions": outcome.decisions.total(),
        "differing": outcome.differing,
        "differences": [
            {
                "at": each.now / 1000,
                "recorded": list(each.recorded[:MOST_NAMES]),
                "repeated": list(each.repeated[:MOST_NAMES]),
            }
            for each in outcome.differences
        ],
        "headsDelayed": outcome.broken,
        "missed": len(outcome.missed),
        "error": incomplete,
    }


def main() -> int:
    work, parts, places, within = orjson.loads(sys.argv[1])
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    seconds = int(within) + 10  # should the operator end without ending this process
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    with contextlib.suppress(OSError):  # where memory runs short, this process ends rather than its parent
        Path("/proc/self/oom_score_adj").write_text("1000")
    answer: Any = answer_to(work, parts, places, within)
    sys.stdout.buffer.write(orjson.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
