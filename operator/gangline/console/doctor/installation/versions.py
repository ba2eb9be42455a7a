"""The version of Kubernetes, what it lacks, and whether clocks agree."""

from __future__ import annotations

from typing import Final

from gangline.api.read.conditions import millis_of
from gangline.console.doctor.cluster import ClusterReads
from gangline.console.doctor.examination import Findings
from gangline.console.doctor.finding import failure, ok, unknown, warning
from gangline.console.doctor.installation.leadership import leases
from gangline.kube import versions

#: seconds by which two clocks may differ
SKEW: Final = 5.0


async def kubernetes(cluster: ClusterReads) -> Findings:
    said = await cluster.version()
    text = str(said.get("gitVersion"))
    version = versions.of(said)
    supported = f"{versions.OLDEST} to {versions.NEWEST} are supported"
    if version is None:
        yield unknown(f"{text!r} is no version; {supported}")
    elif version < versions.OLDEST:
        yield failure(f"{text}; {supported}", "update the cluster")
    elif version > versions.NEWEST:
        yield warning(f"{text}; {supported}", "update Gangline, or expect what nobody has tested")
    else:
        yield ok(f"{text}; {supported}")
    for sentence in versions.lacking(version) if version is not None else ():
        yield ok(sentence)


async def clocks(cluster: ClusterReads) -> Findings:
    """Check of this machine's clock and the leader's, both against the API server's."""
    now, ahead = await cluster.server_clock()
    if abs(ahead) > SKEW:
        side = "behind" if ahead > 0 else "ahead of"
        yield warning(f"this machine's clock is {abs(ahead):.0f} s {side} the API server's", "synchronise it (NTP)")
    else:
        yield ok("this machine's clock agrees with the API server's")
    for where, lease in await leases(cluster):
        renewed = millis_of((lease.get("spec") or {}).get("renewTime"))
        stored = max((millis_of(row.get("time")) for row in lease["metadata"].get("managedFields") or ()), default=0)
        # The API server dates its own record of a write, so both clocks are read at the same moment. Without that record,
        # a renewal in the future still betrays a clock that is ahead.
        skew = (renewed - stored if stored else max(0, renewed - now)) / 1000 if renewed else 0.0
        if abs(skew) > SKEW:
            side = "ahead of" if skew > 0 else "behind"
            advice = "synchronise the clock of its node (NTP): conditions carry its times"
            yield warning(f"the clock of the holder of {where} is {abs(skew):.0f} s {side} the API server's", advice)
