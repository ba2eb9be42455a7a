"""The use of each quota by all adoptions together. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gangline.api.read import parse
from gangline.api.read.reading import amount
from gangline.console.importing.adoptions import Adoption
from gangline.console.importing.cluster_facts import ImportFacts
from gangline.kube import resources as kube


@dataclass(frozen=True, slots=True)
class FlavorUse:
    """The use of one flavor of a ClusterQueue by adopted jobs, beside what is reserved there already. Engine units."""

    cluster_queue: str
    flavor: str
    resource: str
    adopted: int
    reserved: int
    nominal: int

    @property
    def over(self) -> int:
        """The amount by which the nominal quota is exceeded."""
        return max(0, self.adopted + self.reserved - self.nominal)


def uses(adoptions: Sequence[Adoption], facts: ImportFacts) -> list[FlavorUse]:
    adopted: Counter[tuple[str, str, str]] = Counter()
    for adoption in adoptions:
        for assignment in adoption.admission.pod_sets:
            for resource, size in assignment.usage.items():
                adopted[adoption.admission.cluster_queue, assignment.flavors[resource], resource] += size
    return [
        FlavorUse(queue, flavor, resource, total, *_quota(queue, flavor, resource, facts))
        for (queue, flavor, resource), total in sorted(adopted.items())
    ]


def _quota(queue: str, flavor: str, resource: str, facts: ImportFacts) -> tuple[int, int]:
    """The amount that is reserved already, and the nominal quota."""
    obj = facts.find(kube.CLUSTER_QUEUES, queue) or {}
    rows = (obj.get("status") or {}).get("flavorsReservation") or ()
    reserved = next(
        (
            amount(each.get("total", "0"), resource, "status.flavorsReservation")
            for row in rows
            if row.get("name") == flavor
            for each in row.get("resources") or ()
            if each.get("name") == resource
        ),
        0,
    )
    for group in parse.cluster_queue(obj).groups:
        for quotas in group.flavors:
            if quotas.name == flavor and resource in quotas.resources:
                return reserved, quotas.resources[resource].nominal
    return reserved, 0
