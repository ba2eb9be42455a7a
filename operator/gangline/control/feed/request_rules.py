"""The rules by which the cluster adds to the requests of pods: LimitRanges, RuntimeClasses with an overhead,
ResourceClaimTemplates with the devices that they can get, DeviceClasses that stand for resources, and the known sizes of cards,
by which shares of them count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from gangline.api.read.counting import device_charges, device_claims, namespace_rules
from gangline.api.read.counting.device_claims import Claim, ExtendedClass
from gangline.api.read.counting.device_supply import DeviceSupply
from gangline.api.read.counting.namespace_rules import NO_LIMITS, ContainerLimits, NamespaceRules
from gangline.api.read.counting.resource_rules import EVERYTHING, ResourceRules
from gangline.api.read.reading import amounts, child
from gangline.api.selecting import Judges
from gangline.api.sharing.asking import UNKNOWN, CardSizes
from gangline.control.feed.selector_process import SelectorProcess
from gangline.engine.model import Requests
from gangline.kube import resources as kube
from gangline.kube.resources import Resource
from gangline.objects import Stored, WorkloadObject

#: verdicts that are looked up in one round to count claims anew: a few milliseconds
_MOST_WORK: Final = 10_000


class RequestRules:
    """The rules in force. Remembers which Workloads they concern that changed since it was last asked.

    `judges`: evaluate CEL selectors; None: a process of its own, whose answers are waited for.
    """

    def __init__(self, resources: ResourceRules = EVERYTHING, judges: Judges | None = None) -> None:
        #: which resources count in quota, and as what
        self.resources = resources
        self._supply = DeviceSupply(judges or SelectorProcess())
        self._supply_changed = False
        #: namespace -> its claims that have to be counted anew; the namespaces take turns
        self._stale: dict[str, dict[Claim, None]] = {}
        self._ranges: dict[str, dict[str, ContainerLimits]] = {}  # namespace -> LimitRange -> what it says
        #: namespace -> ResourceClaimTemplate -> what it asks for; the rules of the namespace hold the same object
        self._claims: dict[str, dict[str, Claim]] = {}
        self._used: dict[str, Counter[Claim]] = {}
        self._device_classes: dict[str, ExtendedClass] = {}
        self._overheads: dict[str, Requests] = {}
        self._cards = UNKNOWN
        #: placement policies look at images
        self.images = False
        #: those of namespaces with limits, as far as they were asked for, and those of all others
        self._by_namespace: dict[str, NamespaceRules] = {}
        self._without_limits = NamespaceRules.of(NO_LIMITS, {}, resources)
        self._changed_namespaces: set[str] = set()
        self._changed_classes: set[str] = set()
        self._changed_claims: dict[str, set[str]] = {}  # by namespace
        self._changed_resources: set[str] = set()
        self._changed_for_all = False

    def of(self, namespace: str) -> NamespaceRules:
        found = self._by_namespace.get(namespace)
        if found is not None:
            return found
        ranges, claims = self._ranges.get(namespace), self._claims.get(namespace)
        if ranges is None and claims is None:
            return self._without_limits
        limits = namespace_rules.together(each for _, each in sorted((ranges or {}).items(), key=lambda pair: pair[0]))
        self._by_namespace[namespace] = found = NamespaceRules.of(
            limits,
            self._overheads,
            self.resources,
            claims or {},
            self._cards,
            self.images,
            self._supply.of(namespace),
        )
        return found

    def put(self, resource: Resource, key: str, obj: Stored | None) -> None:
        """Store the newest version of such an object; None if it was deleted. Raises ParseError: then nothing has changed."""
        if resource == kube.LIMIT_RANGES:
            self._put_range(key, NO_LIMITS if obj is None else namespace_rules.limits(obj))
        elif resource == kube.RUNTIME_CLASSES:
            self._put_class(key, {} if obj is None else amounts(child(obj, "overhead", ""), "podFixed", "overhead"))
        elif resource == kube.RESOURCE_CLAIM_TEMPLATES:
            self._put_claim(key, None if obj is None else device_claims.claim(obj))
        elif resource == kube.DEVICE_CLASSES:
            self._put_device_class(key, obj)
        elif resource == kube.RESOURCE_SLICES and self.resources.devices.counted:
            found = None if obj is None else device_charges.resource_slice(obj)
            self._supply_changed |= self._supply.put_slice(key, found)

    def put_cards(self, cards: CardSizes) -> None:
        """Replace what is known of all cards of the cluster."""
        if cards != self._cards:
            self._cards, self._changed_for_all = cards, True
            self._forget()

    def look_at_images(self, wanted: bool) -> bool:
        """Set whether placement policies look at the images of pods and nodes. Returns whether that is new."""
        if wanted == self.images:
            return False
        self.images, self._changed_for_all = wanted, True
        self._forget()
        return True

    def _forget(self) -> None:
        """Drop the rules made for each namespace, since something that all have in common has changed."""
        self._without_limits = NamespaceRules.of(
            NO_LIMITS, self._overheads, self.resources, cards=self._cards, images=self.images
        )
        self._by_namespace.clear()

    def _put_device_class(self, name: str, obj: Stored | None) -> None:
        selectors, found = (
            (None, None) if obj is None else (device_claims.class_selectors(obj), device_claims.extended_class(obj))
        )
        self._supply_changed |= self._supply.put_class(name, selectors)
        if found is None:
            self._device_classes.pop(name, None)
        else:
            self._device_classes[name] = found
        before, after = self.resources.devices, device_claims.extended(self._device_classes, self.resources.devices)
        if before != after:
            pairs = [
                before.extended.items() ^ after.extended.items(),
                before.unextended.items() ^ after.unextended.items(),
            ]
            self._changed_resources |= {each for changed in pairs for each, _ in changed}
            self.resources = replace(self.resources, devices=after)
            self._forget()

    @property
    def postponed(self) -> bool:
        """Whether some claims count as nothing for now, or as before, because their selectors are not evaluated yet."""
        return self._supply.waits

    @property
    def unfinished(self) -> bool:
        """Whether more claims have to be counted anew than were in the last round."""
        return bool(self._stale)

    def try_again(self) -> None:
        """Count what was postponed anew when it is next asked which Workloads count differently."""
        self._count_anew(self._supply.postponed)

    def _count_anew(self, claims: Mapping[str, Iterable[Claim]]) -> None:
        for namespace, several in claims.items():
            self._stale.setdefault(namespace, {}).update(dict.fromkeys(several))

    def _recharge(self) -> None:
        """Note the claims that count differently since devices have changed: a bounded part of them in each round."""
        if self._supply_changed:
            self._supply_changed = False
            self._count_anew(self._used)
        work = 0
        while self._stale and work < _MOST_WORK:
            namespace, claims = next(iter(self._stale.items()))
            del self._stale[namespace]
            claim, _ = claims.popitem()
            if claims:
                self._stale[namespace] = claims
            if not self._used.get(namespace, {}).get(claim):
                continue
            work += self._supply.work(claim)
            if self._supply.of(namespace).recharge(claim, self.resources.devices):
                names = {name for name, each in self._claims[namespace].items() if each == claim}
                self._changed_claims.setdefault(namespace, set()).update(names)

    def _put_claim(self, key: str, found: Claim | None) -> None:
        namespace, _, name = key.rpartition("/")
        claims = self._claims.setdefault(namespace, {})
        if claims.get(name) != found:
            self._changed_claims.setdefault(namespace, set()).add(name)
            self._use(namespace, claims.get(name), found)
            if not claims or found is None:
                self._by_namespace.pop(namespace, None)
            if found is None:
                del claims[name]
            else:
                claims[name] = found
        if not claims:
            del self._claims[namespace]
            self._supply.forget(namespace)

    def _use(self, namespace: str, before: Claim | None, found: Claim | None) -> None:
        """Count the templates of a namespace that ask for a claim. What the claim counts as is remembered while there is one."""
        used = self._used.setdefault(namespace, Counter())
        if found is not None:
            used[found] += 1
        if before is not None:
            used[before] -= 1
            if not used[before]:
                del used[before]
                self._supply.of(namespace).forget(before)
        if not used:
            del self._used[namespace]

    def _put_range(self, key: str, found: ContainerLimits) -> None:
        namespace, _, name = key.rpartition("/")
        ranges = self._ranges.setdefault(namespace, {})
        if ranges.get(name, NO_LIMITS) != found:
            ranges[name] = found
            if found == NO_LIMITS:
                del ranges[name]
            self._changed_namespaces.add(namespace)
            self._by_namespace.pop(namespace, None)
        if not ranges:
            del self._ranges[namespace]

    def _put_class(self, name: str, overhead: Requests) -> None:
        if self._overheads.get(name, {}) != overhead:
            self._overheads = {**self._overheads, name: overhead}
            if not overhead:
                del self._overheads[name]
            self._changed_classes.add(name)
            self._forget()

    def take_changed(self) -> Callable[[WorkloadObject], bool] | None:
        """A function that says whether a Workload may count differently than at the last call; None if none does."""
        if self._supply_changed or self._stale:
            self._recharge()
        namespaces, classes, claims = self._changed_namespaces, self._changed_classes, self._changed_claims
        resources, self._changed_resources = self._changed_resources, set()
        everybody, self._changed_for_all = self._changed_for_all, False
        if not namespaces and not classes and not claims and not resources and not everybody:
            return None
        self._changed_namespaces, self._changed_classes, self._changed_claims = set(), set(), {}

        def concerns(workload: WorkloadObject) -> bool:
            namespace, pod_sets = workload.namespace, workload.pod_sets
            return (
                everybody
                or namespace in namespaces
                or (bool(classes) and not classes.isdisjoint(_runtime_classes(pod_sets)))
                or (bool(resources) and not resources.isdisjoint(device_claims.requested(pod_sets)))
                or (namespace in claims and not claims[namespace].isdisjoint(device_claims.templates(pod_sets)))
            )

        return concerns


def _runtime_classes(pod_sets: object) -> set[str]:
    """The RuntimeClasses that pods name, of whatever shape what is written there may be."""
    found: set[str] = set()
    for pod_set in pod_sets if isinstance(pod_sets, list) else ():
        value: object = pod_set
        for key in ("template", "spec", "runtimeClassName"):
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, str):
            found.add(value)
    return found
