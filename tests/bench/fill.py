"""The fill benchmark: pods of a cluster's trace are placed one by one on its nodes until nothing fits, by several policies.

No pod ever ends. The demand of the pods is raised to a given part of all GPUs by drawing more pods from the list, in an order
that only the seed decides; a pod that fits nowhere is left out. What counts is the share of all GPUs that is given away at the
end. (The benchmark of "Beware of Fragmentation", ATC'23.)

    results = fill(pods, nodes, policies=("BestFit", "Fragmentation"), seeds=range(42, 52))

`python -m tests.bench.fill PODS NODES` prints JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import thread_time
from typing import Any, Final

from gangline.engine import (
    PROFILES,
    BestPlace,
    CardRoom,
    Field,
    Fragments,
    Host,
    Pipeline,
    PlacingProfile,
    PodRequest,
    Score,
)
from gangline.engine.model import Device, Share
from gangline.traces.openb import PODS
from gangline.traces.trace import TraceError, TraceJob, rows

#: the order of the report; "random" takes any host that the filters leave
POLICIES: Final = ("random", "BestFit", "DotProduct", "FGD", "Fragmentation")
RANDOM: Final = "random"
_WHOLE: Final = 1000
MIB: Final = 2**20

_FILTERS: Final = ("Fits", "NodeSelector")
#: what is compared besides our own profiles
_OTHERS: Final[Mapping[str, PlacingProfile]] = {
    RANDOM: PlacingProfile(_FILTERS, (Score("BestFit"),)),
    "BestFit": PlacingProfile(_FILTERS, (Score("BestFit"),)),
    "DotProduct": PlacingProfile(_FILTERS, (Score("DotProduct"),)),
    "FGD": PlacingProfile(_FILTERS, (Score("Fragmentation"),)),
}


@dataclass(frozen=True, slots=True)
class Filled:
    """One policy with one seed."""

    policy: str
    seed: int
    #: thousandths of GPUs
    total: int
    asked: int
    given: int
    pods: int
    placed: int
    #: CPU seconds of the placements
    seconds: float
    #: watts on average over all arrivals up to a part of the demand: with all hosts on, and where idle ones are off
    watts: Mapping[str, tuple[float, float]]
    #: why pods found no host: hosts by reason, summed over these pods
    reasons: Mapping[str, int]

    @property
    def share(self) -> float:
        return 100.0 * self.given / self.total


def ask_of(pod: TraceJob) -> PodRequest:
    requests = [("cpu", pod.cpu_milli), ("memory", pod.memory), ("pods", 1)]
    shares: tuple[Share, ...] = ()
    if pod.gpus:
        models = tuple(pod.flavor.split("|")) if pod.flavor else ()
        part = Share(milli=pod.gpu_milli, models=models)
        shares = (part if pod.gpu_milli else Share(count=pod.gpus, exclusive=True, models=models),)
    return PodRequest(tuple((name, amount) for name, amount in requests if amount > 0), shares)


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A node of openb's list."""

    name: str
    gpus: int
    flavor: str = ""
    cpu_milli: int = 0
    memory: int = 0  #: bytes


def pods_of(path: Path) -> tuple[TraceJob, ...]:
    """What every pod of the list asks for, whether it ran or not, with its share of a GPU or without any."""
    return tuple(
        TraceJob(
            id=row.text("name"),
            submit=0.0,
            duration=0.0,
            gpus=row.count("num_gpu"),
            gpu_milli=row.count("gpu_milli") if 0 < row.count("gpu_milli") < 1000 and row.count("num_gpu") == 1 else 0,
            cpu_milli=row.count("cpu_milli"),
            memory=row.count("memory_mib") * MIB,
            flavor=row.text("gpu_spec"),
        )
        for row in rows(path, PODS)
    )


def nodes_of(path: Path) -> tuple[TraceNode, ...]:
    """The nodes of the cluster, in the order of the file."""
    return tuple(
        TraceNode(
            name=row.text("sn"),
            gpus=row.count("gpu"),
            flavor=row.text("model"),
            cpu_milli=row.count("cpu_milli"),
            memory=row.count("memory_mib") * MIB,
        )
        for row in rows(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model"))
    )


def host_of(node: TraceNode, pods: int) -> Host:
    total = {"cpu": node.cpu_milli, "memory": node.memory, "pods": pods}
    cards = [CardRoom(Device(node.name, f"{node.name}/{number}", number, node.flavor)) for number in range(node.gpus)]
    watts = CARD_WATTS.get(node.flavor, (0, 0))[1]
    return Host(node.name, total, dict(total), {}, cards, idle_watts=NODE_WATTS, gpu_watts=watts)


#: model -> watts of a card that nobody uses, and its limit, by the makers' data sheets. The list says G2 and G3 for cards that it
#: does not name: these are counted as an A10 and an A100
CARD_WATTS: Final[Mapping[str, tuple[int, int]]] = {
    "T4": (10, 70),
    "P100": (25, 250),
    "V100M16": (30, 300),
    "V100M32": (30, 300),
    "G2": (30, 150),
    "G3": (50, 400),
    "A10": (30, 150),
}
#: watts of a host that is on, without its cards
NODE_WATTS: Final = 200


def draws(host: Host) -> tuple[int, int]:
    """What a host draws: with all hosts on, and where hosts without pods are off. A card with any pod draws its limit."""
    model = host.cards[0].device.model if host.cards else ""
    idle, limit = CARD_WATTS.get(model, (0, 0))
    busy = sum(bool(room.residents) for room in host.cards)
    watts = NODE_WATTS + busy * limit + (len(host.cards) - busy) * idle
    return watts, 0 if host.free == host.total else watts


def demanded(pods: Sequence[TraceJob], total: int, load: float, seed: int) -> list[TraceJob]:
    """The pods in a random order, and then more of them, drawn at random, until they ask for so much of all GPUs."""
    source = random.Random(seed)
    order = list(pods)
    source.shuffle(order)
    asked = sum(_milli(pod) for pod in order)
    if not asked:
        raise TraceError("no pod asks for a GPU")
    while asked < load * total:
        pod = source.choice(pods)
        order.append(pod)
        asked += _milli(pod)
    return order


def fill(
    pods: Sequence[TraceJob],
    nodes: Sequence[TraceNode],
    *,
    policies: Iterable[str] = POLICIES,
    seeds: Iterable[int] = (42,),
    load: float = 1.3,
) -> Iterator[Filled]:
    """Fill the nodes by every policy with every seed."""
    chosen = list(policies)
    fragments = Fragments.of(ask_of(pod) for pod in pods)
    total = _WHOLE * sum(node.gpus for node in nodes)
    for seed in seeds:
        order = demanded(pods, total, load, seed)
        for name in chosen:
            yield _fill(name, seed, order, [host_of(node, len(order)) for node in nodes], fragments, total)


def _fill(
    name: str, seed: int, order: Sequence[TraceJob], hosts: Sequence[Host], fragments: Fragments, total: int
) -> Filled:
    start = thread_time()
    pipeline = Pipeline(_OTHERS.get(name) or PROFILES[name], hosts, Field(fragments=fragments))
    source = random.Random(seed) if name == RANDOM else None
    given = placed = arrived = 0
    reasons: Counter[str] = Counter()
    drawn = {host.name: draws(host) for host in hosts}
    now = [sum(column) for column in zip(*drawn.values(), strict=True)]
    sums, arrivals = {part: [0.0, 0.0] for part in PARTS}, dict.fromkeys(PARTS, 0)
    for pod in order:
        ask = ask_of(pod)
        arrived += _milli(pod)
        for part in PARTS:
            if arrived <= part * total:
                sums[part] = [sum(pair) for pair in zip(sums[part], now, strict=True)]
                arrivals[part] += 1
        choice = pipeline.best(ask) if source is None else pipeline.any(ask, source.choice)
        if choice is None:
            reasons += pipeline.reasons(ask)
            continue
        _take(choice, ask, pod.id)
        pipeline.changed(choice.position)
        host = choice.place.host
        before, drawn[host.name] = drawn[host.name], draws(host)
        now = [watts + new - old for watts, new, old in zip(now, drawn[host.name], before, strict=True)]
        given += _milli(pod)
        placed += 1
    seconds = thread_time() - start
    asked = sum(_milli(pod) for pod in order)
    watts = {
        f"{part:.0%}": (sums[part][0] / max(1, arrivals[part]), sums[part][1] / max(1, arrivals[part]))
        for part in PARTS
    }
    return Filled(name, seed, total, asked, given, len(order), placed, seconds, watts, reasons)


#: parts of all GPUs that pods ask for, up to which power is averaged
PARTS: Final = (0.3, 0.5, 0.7, 1.0)


def _take(choice: BestPlace, ask: PodRequest, holder: str) -> None:
    place = choice.place
    for room, resident in place.residents(ask, holder):
        room.seat(resident)
    place.host.free = {name: amount - ask.amount(name) for name, amount in place.host.free.items()}


def _milli(pod: TraceJob) -> int:
    return pod.gpu_milli or _WHOLE * pod.gpus


def report(results: Iterable[Filled]) -> dict[str, Any]:
    """The results by policy: the share of GPUs by seed and on average, and what a placement costs."""
    found: dict[str, Any] = {}
    by_policy: dict[str, list[Filled]] = {}
    for result in results:
        by_policy.setdefault(result.policy, []).append(result)
    for policy, runs in by_policy.items():
        tried, seconds = sum(run.pods for run in runs), sum(run.seconds for run in runs)
        found[policy] = {
            "gpus_allocated_percent": round(sum(run.share for run in runs) / len(runs), 3),
            "by_seed": {str(run.seed): round(run.share, 3) for run in runs},
            "placed": sum(run.placed for run in runs) / len(runs),
            "of": tried / len(runs),
            "ms_per_placement": round(1000 * seconds / tried, 3) if tried else 0.0,
            "kilowatts_all_on": _mean_watts(runs, 0),
            "kilowatts_idle_off": _mean_watts(runs, 1),
            "unplaced": dict(sum((Counter(run.reasons) for run in runs), Counter[str]()).most_common(5)),
        }
    return found


def _mean_watts(runs: Sequence[Filled], which: int) -> dict[str, float]:
    """Kilowatts by part of the demand, on average over seeds."""
    return {part: round(sum(run.watts[part][which] for run in runs) / len(runs) / 1000, 1) for part in runs[0].watts}


def run(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """The report for these arguments of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.fill",
        description="Fill a cluster with the pods of a trace, by several policies; JSON on stdout.",
    )
    parser.add_argument("pods", type=Path, help="openb's list of pods, CSV, plain or gzipped")
    parser.add_argument("nodes", type=Path, help="openb's list of nodes")
    parser.add_argument("--policies", default=",".join(POLICIES), help="(default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=10, help="how many, from 42 on (default: %(default)s)")
    parser.add_argument("--load", type=float, default=1.3, help="demand as a part of all GPUs (default: %(default)s)")
    given = parser.parse_args(arguments)
    policies = given.policies.split(",")
    unknown = [name for name in policies if name not in _OTHERS and name not in PROFILES]
    if unknown:
        parser.error(f"--policies: unknown: {', '.join(unknown)}")
    if not 0 < given.load <= 10 or not 0 < given.seeds <= 1000:
        parser.error("--load is above 0 and at most 10, --seeds from 1 to 1000")
    try:
        pods, nodes = pods_of(given.pods), nodes_of(given.nodes)
        runs: list[Filled] = []
        for each in fill(pods, nodes, policies=policies, seeds=range(42, 42 + given.seeds), load=given.load):
            print(f"seed {each.seed}: {each.policy} {each.share:.2f} %, {each.seconds:.1f} s", file=sys.stderr)
            runs.append(each)
    except TraceError as error:
        parser.error(str(error))
    size = {"nodes": len(nodes), "gpus": sum(node.gpus for node in nodes), "pods": len(pods), "load": given.load}
    return {"cluster": size, "policies": report(runs)}


def main(arguments: Sequence[str] | None = None) -> int:
    print(json.dumps(run(arguments), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
