"""Makes checks side by side, each within its own time, and shows what they found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

from gangline.console.doctor.cluster import SYMBOLS, ClusterReads, Finding, Verdict, unknown
from gangline.kube.errors import ApiError, Forbidden, TooManyRequests

#: the verdicts, the most urgent first
ORDER: Final[tuple[Verdict, ...]] = ("failure", "warning", "unknown", "ok")
#: seconds to wait where an API server that sheds load does not say for how long
PAUSE: Final = 1.0
#: what a check yields, one after the other
Findings = AsyncGenerator[Finding, None]


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table of contents. `seconds`: its time limit."""

    name: str
    run: Callable[[ClusterReads], Findings]
    seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class Examination:
    """A table of contents, the word for each verdict, and whether findings are shown by verdict instead of by check."""

    checks: Sequence[Check]
    words: Mapping[Verdict, str]
    grouped: bool = False

    async def of(self, cluster: ClusterReads) -> list[Finding]:
        """The findings of all checks, in the order of the checks; if they are grouped, what is most urgent first."""
        made = await asyncio.gather(*(_made(cluster, check) for check in self.checks))
        found = [finding for findings in made for finding in findings]
        return sorted(found, key=lambda finding: ORDER.index(finding.verdict)) if self.grouped else found

    def as_json(self, findings: Sequence[Finding]) -> dict[str, Any]:
        rows = [finding.as_json(self.words[finding.verdict]) for finding in findings]
        return {"ok": not any(finding.verdict == "failure" for finding in findings), "findings": rows}

    def rendered(self, findings: Sequence[Finding]) -> str:
        """A line for each finding and one for its advice; at the end, how many there are of each verdict."""
        width = max((len(finding.check) for finding in findings), default=0)
        lines: list[str] = []
        for before, finding in zip((None, *findings), findings, strict=False):
            if self.grouped and (before is None or before.verdict != finding.verdict):
                lines += ["", f"{self.words[finding.verdict]}:"] if before else [f"{self.words[finding.verdict]}:"]
            lines.append(f"{SYMBOLS[finding.verdict]} {finding.check.ljust(width)}  {finding.detail}")
            if finding.advice:
                lines.append(f"  {' ' * width}  → {finding.advice}")
        counts: list[tuple[int, Verdict]] = [
            (sum(finding.verdict == verdict for finding in findings), verdict) for verdict in ORDER
        ]
        totals = ", ".join(f"{count} {self.words[verdict]}" for count, verdict in counts if count)
        return "\n".join([*lines, "", f"{totals}."])


async def _made(cluster: ClusterReads, check: Check) -> list[Finding]:
    """The findings of a check until it ended, in whatever way."""
    found: list[Finding] = []
    try:
        async with asyncio.timeout(check.seconds):
            while not await _done(cluster, check, found):
                found.clear()
    except TimeoutError:
        found.append(unknown(f"no answer within {check.seconds:g} s"))
    except Forbidden as error:
        found.append(unknown(f"not allowed: {error.message}", "ask somebody with more rights"))
    except ApiError as error:
        found.append(unknown(str(error)))
    except Exception as error:  # an object that has not the shape that its kind should have
        found.append(unknown(f"the check failed: {type(error).__name__}: {error}"))
    return [replace(finding, check=check.name) for finding in found]


async def _done(cluster: ClusterReads, check: Check, found: list[Finding]) -> bool:
    """Make a check. False where the API server sheds load: then the check is made again, a little later."""
    try:
        async with aclosing(check.run(cluster)) as findings:
            async for finding in findings:
                found.append(finding)
    except TooManyRequests as error:
        await asyncio.sleep(error.retry_after or PAUSE)
        return False
    return True
