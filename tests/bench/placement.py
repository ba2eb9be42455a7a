"""What placement is worth and what it costs: `make bench-placement`, JSON on stdout.

`policies` is the fill benchmark (tests.bench.fill) on the lists of pods and nodes that are given. `cycle` is the engine
alone: 1,000 nodes of 8 GPUs, 200 gangs of 8 pods that arrive together, in a queue with each profile and in one without a policy.
Seconds are CPU seconds of this thread.
"""

from __future__ import annotations

import json
import sys
from time import thread_time
from typing import Any

from tests.bench import fill

from gangline.engine import HOSTNAME, OF_POLICY, Engine
from gangline.engine.model import (
    Admit,
    ClusterQueue,
    Flavor,
    FlavorQuotas,
    LocalQueue,
    Node,
    PlacementPolicy,
    PodSet,
    Put,
    Quota,
    ResourceGroup,
    Topology,
    Workload,
)

NODES, GANGS, PODS = 1_000, 200, 8
GPU = "nvidia.com/gpu"
NOW = 1_000_000


def run_cycle(profile: str) -> dict[str, Any]:
    """All gangs wait, and are decided about; "" = without a policy, on a flavor that selects the same nodes."""
    engine = Engine()
    policy = PlacementPolicy(profile) if profile else None
    quotas = ResourceGroup((GPU, "cpu"), (FlavorQuotas("gpus", {GPU: Quota(8 * NODES), "cpu": Quota(96_000 * NODES)}),))
    facts: list[Any] = [
        Flavor("gpus", {"pool": "gpus"}),
        Topology(OF_POLICY, (HOSTNAME,)),
        ClusterQueue("q", groups=(quotas,), placement=policy),
        LocalQueue("team", "q", "q"),
    ]
    for number in range(NODES):
        name = f"n{number:04}"
        facts.append(Node(name, {"pool": "gpus", HOSTNAME: name}, {GPU: 8, "cpu": 96_000, "pods": 110}))
    for number in range(GANGS):
        requests = {GPU: 1 + number % 4, "cpu": 4_000}
        facts.append(
            Workload(f"u{number}", "team", f"w{number}", "q", (PodSet("main", PODS, requests),), created=number)
        )
    for fact in facts:
        engine.observe(Put(fact))
    start = thread_time()
    admitted = 0
    while engine.next_wakeup(NOW) is None or engine.next_wakeup(NOW) == NOW:
        found = engine.decide(NOW)
        admitted += sum(isinstance(each, Admit) for each in found)
        if not found:
            break
    return {"profile": profile or "none", "admitted": admitted, "seconds": round(thread_time() - start, 3)}


def main() -> None:
    cycles = [run_cycle(profile) for profile in ("", "Pack", "Spread", "Fragmentation")]
    json.dump({**fill.run(), "cycle": cycles}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
