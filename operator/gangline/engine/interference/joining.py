"""Who may join whom on a card and on a node, and how much faster all together are then.

A pod beside several others is slowed by each: the excesses of their slowdowns add up. Company on its card and on its node are
two bottlenecks, of which the narrower one counts: S = max(card, node).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from gangline.engine.interference.pair_speeds import ExpectedSpeed, PairSpeeds
from gangline.engine.model.company import CompanyPolicy
from gangline.engine.model.devices import WHOLE, Device, Share

#: Why a pod may not join, as `gangline why` counts it. "" = it may.
PAIR_BARRED: Final = "the pair ran out of memory on such a card"
TOO_SLOW: Final = "a pod would be slowed beyond the cap"
NO_GAIN: Final = "the pods are not faster together"
UNKNOWN: Final = "the pods' company is not known"
NO_PEAK: Final = "the measured peaks of memory exceed the card"
NOT_ENFORCED: Final = "memory of the card is neither enforced nor measured"


@dataclass(frozen=True, slots=True)
class Company:
    """What a policy looks at when a pod of class `kind` joins others. Equal ones share their verdicts."""

    kind: str
    policy: CompanyPolicy
    #: another object means other verdicts
    speeds: PairSpeeds
    #: thousandths: how much the pod itself may be slowed; 0 = as the policy says
    max_slowdown: int = 0

    def refuses(self, device: Device, residents: Sequence[str], strictest: int = 0, *, enforced: bool = True) -> str:
        """Why the pod may not join pods of these classes on this card. A class is "" where it is not known.

        `strictest`: the strictest limit that one of them has set to its slowdown, in thousandths; 0 = none has. `enforced`: no
        pod gets more memory of the card than it asked for.
        """
        if not residents:
            return ""
        residents = self._named(residents)
        card = device.model, device.mode, device.memory
        key = (self.kind, self.policy, self.max_slowdown, card, strictest, enforced, *residents)
        return self.speeds.verdict(key, lambda: self._refuses(device, residents, strictest, enforced=enforced))

    def _refuses(self, device: Device, residents: Sequence[str], strictest: int, *, enforced: bool) -> str:
        reason = self._overflows(device, residents, enforced=enforced)
        if reason:
            return reason
        known = True
        for resident in residents:
            for pair in (self._card(self.kind, resident, device), self._card(resident, self.kind, device)):
                if pair is None:
                    known = False
                elif pair.out_of_memory:
                    return PAIR_BARRED
        if not known:
            unknown = self.policy.unknown
            return "" if unknown == "Share" or (unknown == "Probe" and len(residents) == 1) else UNKNOWN
        everybody = [*residents, self.kind]
        after = self._slowdowns(everybody, device)
        if after[-1] > self._cap(self.max_slowdown) or max(after[:-1]) > self._cap(strictest):
            return TOO_SLOW
        before = sum(1 / each for each in self._slowdowns(residents, device))
        together = sum(1 / each for each in after)
        return NO_GAIN if together < self.policy.min_gain * max(before, 1.0) else ""

    def _overflows(self, device: Device, residents: Sequence[str], *, enforced: bool) -> str:
        """Why memory might not suffice for all, whatever they ask for."""
        peaks = [self.speeds.memory_of(kind, device.model) for kind in (*residents, self.kind)]
        if device.memory and sum(peaks) > device.memory:
            return NO_PEAK
        return "" if enforced or all(peaks) or self.policy.unknown == "Share" else NOT_ENFORCED

    def refuses_node(self, residents: Mapping[str, int]) -> str:
        """Why the pod may not be on a node with so many pods of each class, on whichever cards. Only pods that slow one another
        down there are looked at.
        """
        if not self.speeds.has_nodes:
            return ""
        met = {
            kind: count for kind, count in self._counted(residents).items() if self.speeds.meet_on_node(self.kind, kind)
        }
        if not met:
            return ""
        before, after = self._on_node(met, None), self._on_node(met, self.kind)
        if max(slowdown for slowdown, _ in after) > self.policy.max_slowdown:
            return TOO_SLOW
        total = sum(count / slowdown for slowdown, count in after)
        least = max(sum(count / slowdown for slowdown, count in before), 1.0)
        return NO_GAIN if total < self.policy.min_gain * least else ""

    def gain(self, device: Device, residents: Sequence[str], on_node: Mapping[str, int]) -> float:
        """How much the speed of all together grows when the pod joins: 1 where it is as fast as alone and slows nobody.

        `on_node`: how many pods of each class are on the node, those on the card included. Pairs of which nothing is known count
        as if they were slowed as much as the policy allows.
        """
        residents, on_node = self._named(residents), self._counted(on_node)
        narrow = self._node_slowdowns(on_node, joined=False), self._node_slowdowns(on_node, joined=True)
        before = self._slowdowns(residents, device)
        after = self._slowdowns([*residents, self.kind], device)
        here = 0.0
        for kind, old, new in zip(residents, before, after, strict=False):
            here += 1 / max(new, narrow[1].get(kind, 1.0)) - 1 / max(old, narrow[0].get(kind, 1.0))
        here += 1 / max(after[-1], narrow[1].get(self.kind, 1.0))
        away = dict(on_node)
        for kind in residents:
            away[kind] = away.get(kind, 0) - 1
        return here + sum(
            count * (1 / narrow[1].get(kind, 1.0) - 1 / narrow[0].get(kind, 1.0))
            for kind, count in away.items()
            if count > 0
        )

    def _cap(self, said: int) -> float:
        """The most that a pod may be slowed: what its job says, and what the policy says for all."""
        most = self.policy.max_slowdown
        return min(most, said / WHOLE) if said else most

    # --- slowdowns ----------------------------------------------------------------------------------------------------

    def _named(self, kinds: Sequence[str]) -> list[str]:
        return [self.speeds.class_of(kind) for kind in kinds]

    def _counted(self, kinds: Mapping[str, int]) -> dict[str, int]:
        found: dict[str, int] = {}
        for kind, count in kinds.items():
            name = self.speeds.class_of(kind)
            found[name] = found.get(name, 0) + count
        return {name: count for name, count in found.items() if count > 0}

    def _card(self, mine: str, beside: str, device: Device) -> ExpectedSpeed | None:
        return self.speeds.on_card(mine, beside, device) if mine and beside else None

    def _slowdowns(self, kinds: Sequence[str], device: Device) -> list[float]:
        """The slowdown of each of the pods of one card by the others."""
        return [
            self.speeds.slowdown_on_card(mine, [*kinds[:place], *kinds[place + 1 :]], device, self.policy.max_slowdown)
            for place, mine in enumerate(kinds)
        ]

    def _node_slowdowns(self, residents: Mapping[str, int], *, joined: bool) -> dict[str, float]:
        """The slowdown of a pod of each class by all others of its node."""
        if not self.speeds.has_nodes:
            return {}
        counts = dict(residents)
        if joined:
            counts[self.kind] = counts.get(self.kind, 0) + 1
        return {mine: self.speeds.slowdown_on_node(mine, counts) for mine in counts}

    def _on_node(self, residents: Mapping[str, int], joining: str | None) -> list[tuple[float, int]]:
        """Slowdowns, each with the number of pods that have it."""
        slowed = self._node_slowdowns(residents, joined=joining is not None)
        counts = dict(residents)
        if joining is not None:
            counts[joining] = counts.get(joining, 0) + 1
        return [(slowed.get(kind, 1.0), count) for kind, count in counts.items()]


#: a pod of which nothing is known
NOBODY: Final = Company("", CompanyPolicy(), PairSpeeds())


@dataclass(frozen=True, slots=True)
class CompanyShare(Share):
    """A share of a card in a queue whose policy looks at company."""

    company: Company = NOBODY


def in_company(share: Share, company: Company) -> CompanyShare:
    """The same share, with whom it may have as company."""
    said = {each.name: getattr(share, each.name) for each in fields(Share)}
    return CompanyShare(**said, company=company)
