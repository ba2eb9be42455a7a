"""Eight jobs on one node with four cards and six CPU cores, as Kim and Kim measured them (KNOM 2020), replayed and placed by us.

Two of each: LAMMPS (L), GROMACS (G), Tensorflow (T) and QMCPACK (Q). Their Table 3 says what each declares, Table 4 when each was
done under three policies, and Table 2 how long two GROMACS take apart and on one card. The speeds below follow from these tables:
LAMMPS is slowed by the GROMACS that run on its node, on whichever cards, and GROMACS by LAMMPS; the rest happens on cards. They
are the law of this world; what a policy knows is a part of them, as pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gangline.engine import PairSpeeds, kind_mark
from gangline.engine.model import CompanyPolicy, CompanySpeed, JobProfile, Share
from gangline.replay.corun import CorunJob, CorunOutcome, CorunPolicy, CorunRun, hosts_of, play

#: Table 3, with MiB for its GB: declared memory, and percent of a GPU
MEMORY: Final = {"L": 8_300, "G": 600, "T": 3_500, "Q": 5_300}
UTILISATION: Final = {"L": 23, "G": 72, "T": 88, "Q": 47}
CARD: Final = 12_000
#: Table 4, in seconds
MEASURED: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = {
    "Binpacking": {"L": (3450, 3449), "G": (2490, 2824), "T": (85, 85), "Q": (703, 1294)},
    "Standalone": {"L": (3067, 3009), "G": (2072, 2089), "T": (147, 148), "Q": (854, 802)},
    "Loadbalance": {"L": (3105, 3111), "G": (2185, 2185), "T": (83, 83), "Q": (905, 801)},
}
#: seconds of each alone. GROMACS: Table 2. LAMMPS: solved from its three times of Table 4. QMCPACK beside itself and Tensorflow
#: beside LAMMPS were not faster in any measurement
ALONE: Final = {"L": 1644.0, "G": 718.5, "T": 83.0, "Q": 828.0}

#: of LAMMPS by the number of GROMACS on the node, and of GROMACS beside any LAMMPS of the node
_LAMMPS: Final = (1.0, 0.589, 0.330)
_GROMACS_BY_NODE: Final = 0.345
#: by neighbours on the card, while no LAMMPS is on the node: Table 2 (two on one card take 1506 s), and Loadbalance
_GROMACS_BY_CARD: Final = {"": 1.0, "G": 718.5 / 1506, "Q": 0.878}
#: the same beside LAMMPS: GQQ from the mean of Binpacking's four
_GROMACS_BY_BOTH: Final = {"Q": 0.303, "GQQ": 0.1465}
_QMCPACK: Final = {"G": 828 / 853, "GG": 828 / 853, "GGQ": 0.829}
_TENSORFLOW: Final = {"T": 83 / 147.5}


def law(host: int, runs: Sequence[CorunRun]) -> list[float]:
    """The speeds that follow from the tables."""
    kinds = [run.job.kind for run in runs]
    cards = [run.seats[0][1][0] for run in runs]
    gromacs, lammps = kinds.count("G"), kinds.count("L")
    found: list[float] = []
    for place, kind in enumerate(kinds):
        near = "".join(sorted(kinds[at] for at in range(len(runs)) if at != place and cards[at] == cards[place]))
        if kind == "L":
            found.append(_LAMMPS[min(gromacs, 2)])
        elif kind == "G" and lammps:
            found.append(min(_GROMACS_BY_BOTH.get(near, _GROMACS_BY_NODE), _GROMACS_BY_NODE))
        elif kind == "G":
            found.append(_GROMACS_BY_CARD.get(near, min(_GROMACS_BY_CARD.values())))
        else:
            found.append((_QMCPACK if kind == "Q" else _TENSORFLOW).get(near, 1.0))
    return found


def known(*, table2: bool = True) -> PairSpeeds:
    """What a policy knows of pairs. Without Table 2 nothing is known of GROMACS alone, so that no slowdown of it is known."""
    # two LAMMPS and two GROMACS on the node: the excess of each is divided by the number of its neighbours
    beside_gromacs, beside_lammps = 1 + (1 / _LAMMPS[2] - 1) / 2, 1 + (1 / _GROMACS_BY_NODE - 1) / 2
    said: dict[str, list[CompanySpeed]] = {
        "L": [
            CompanySpeed("G", on_node=True, speed=1 / beside_gromacs),
            CompanySpeed("T", speed=1.0),
            CompanySpeed("L", on_node=True, speed=1.0),
        ],
        "G": [
            CompanySpeed("L", on_node=True, speed=1 / beside_lammps),
            CompanySpeed("G", speed=_GROMACS_BY_CARD["G"]),
            CompanySpeed("Q", speed=_GROMACS_BY_CARD["Q"]),
        ],
        "T": [CompanySpeed("L", speed=1.0), CompanySpeed("T", speed=_TENSORFLOW["T"])],
        "Q": [CompanySpeed("Q", speed=1.0), CompanySpeed("G", speed=_QMCPACK["G"])],
    }
    if not table2:
        return PairSpeeds()
    profiles = {name: JobProfile(name, tuple(pairs)) for name, pairs in said.items()}
    return PairSpeeds(profiles, mark=kind_mark)


def jobs(order: str, **memory: int) -> list[CorunJob]:
    """The eight jobs, which arrive at once in this order. `memory`: what a class takes, if it is not what it declares."""
    sizes = {**MEMORY, **memory}
    found: list[CorunJob] = []
    for number, kind in enumerate(order):
        share = Share(memory=sizes[kind], by_memory=True, mode="Software")
        found.append(CorunJob(f"{kind}{number}", kind, 0.0, ALONE[kind], share, utilisation=UTILISATION[kind]))
    return found


def _by_memory(job: CorunJob) -> tuple[float, ...]:
    return (-MEMORY[job.kind],)


def _shortest(job: CorunJob) -> tuple[float, ...]:
    return (job.seconds,)


@dataclass(frozen=True, slots=True)
class Scenario:
    policy: CorunPolicy
    #: what a class takes of a card's memory, where that is not what it declares
    memory: Mapping[str, int]


#: two LAMMPS ran on one card, which by what they declare they could not
_MEASURED_LAMMPS: Final = {"L": 5_600}
_ANYBODY: Final = CompanyPolicy(max_slowdown=20, min_gain=0, unknown="Share")


def scenarios() -> dict[str, Scenario]:
    """The three policies of the authors, and ours: placement only, placement and order, and with nothing known of pairs."""
    return {
        "Binpacking": Scenario(CorunPolicy("Binpacking", "Pack", order=_by_memory), {}),
        "Standalone": Scenario(CorunPolicy("Standalone", "Standalone"), _MEASURED_LAMMPS),
        "Loadbalance": Scenario(CorunPolicy("Loadbalance", "Balance", order=lambda job: (-UTILISATION[job.kind],)), {}),
        "ours, placement only": Scenario(CorunPolicy("ours, placement only", "Interference", _ANYBODY, known()), {}),
        "ours, placement and order": Scenario(
            CorunPolicy("ours, placement and order", "Interference", CompanyPolicy(), known(), order=_shortest), {}
        ),
        "ours, nothing known": Scenario(
            CorunPolicy("ours, nothing known", "Interference", CompanyPolicy(unknown="Probe"), known(table2=False)), {}
        ),
    }


def run(name: str, order: str = "LLGGTTQQ") -> CorunOutcome:
    scenario = scenarios()[name]
    return play(jobs(order, **scenario.memory), hosts_of(1, 4, memory=CARD), scenario.policy, law)


def report() -> dict[str, Any]:
    """Makespan and mean completion of each, in seconds, beside what was measured."""
    found: dict[str, Any] = {}
    for name in scenarios():
        outcome = run(name)
        found[name] = {
            "makespan": round(outcome.makespan, 1),
            "mean_completion": round(outcome.mean_completion, 1),
            "by_class": {kind: round(seconds, 1) for kind, seconds in outcome.by_kind().items()},
        }
        if name in MEASURED:
            times = [seconds for pair in MEASURED[name].values() for seconds in pair]
            found[name]["measured"] = {
                "makespan": max(times),
                "mean_completion": sum(times) / len(times),
                "by_class": {kind: sum(pair) / 2 for kind, pair in sorted(MEASURED[name].items())},
            }
    return found
