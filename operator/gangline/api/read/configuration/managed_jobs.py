"""Which jobs are managed: those of listed kinds in selected namespaces that name a queue, or all of them.

Read from `manageJobsWithoutQueueName`, `managedJobsNamespaceSelector` and `integrations`. The operator and the webhooks both
decide by it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, cast

from gangline.api import jobkinds, names
from gangline.api.jobkinds import Declaration, others
from gangline.api.read.configuration import declared_kinds, selectors
from gangline.api.read.configuration.fields import ConfigurationError, flag, mapping
from gangline.api.read.configuration.gates import Gates
from gangline.engine import model
from gangline.engine.model import expression_matches
from gangline.kube.resources import Json, Resource

#: Kueue's name of plain pods and pod groups, which are no job kind of `jobkinds`
PODS: Final = "pod"
#: Kueue's names of the kinds whose pods wait in their place, also where plain pods are not listed
BY_PODS: Final[Mapping[str, tuple[str, str]]] = {
    each.framework: each.identity for each in jobkinds.BUILT_IN if each.by_pods
}
#: Kueue's name of a job kind -> its group and kind, as far as Gangline has it
FRAMEWORKS: Final[Mapping[str, tuple[str, str]]] = {
    **{each.framework: each.identity for each in jobkinds.BUILT_IN if each.framework},
    PODS: ("", "Pod"),
}
#: those that are managed without a list
BY_DEFAULT: Final = tuple(each.framework for each in jobkinds.BUILT_IN if each.by_default)
#: those that the shipped manifests list, as Kueue's do; pods only on request, since their webhooks concern every namespace
SHIPPED: Final = tuple(each.framework for each in jobkinds.BUILT_IN if each.shipped)
#: frameworks that older files list -> why there is none of this name
DROPPED: Final[Mapping[str, str]] = {
    "kubeflow.org/mxjob": "Kueue has had no MXJob since 0.11, and Kubeflow's training operator has none since 1.9"
}
MOST_EXTERNAL: Final = 64
_SELECTOR: Final = "managedJobsNamespaceSelector"
#: the label that every namespace has
_NAME: Final = "kubernetes.io/metadata.name"


@dataclass(frozen=True, slots=True)
class ManagedJobs:
    """`kinds`: group and kind of those that may be listed and are not, so that their jobs are left alone."""

    without_queue: bool = False
    #: None = all namespaces but those of the system, which are never selected
    selector: model.LabelSelector | None = None
    #: also for jobs that name a queue
    selector_holds_for_queued: bool = True
    unlisted: frozenset[tuple[str, str]] = frozenset({FRAMEWORKS[PODS]})
    #: kinds that the configuration itself declares, which are always managed
    declared: tuple[Declaration, ...] = ()
    #: kinds of other controllers, which bring Workloads of their own
    external: tuple[Resource, ...] = ()
    #: a job that names no queue gets that of its namespace, and one that names no priority class the default one
    queue_by_default: bool = True
    priority_by_default: bool = True
    #: the rules of Ray and Spark hold for a job that loses its queue, too
    leaving_checked: bool = True
    #: jobs may grow and shrink while they run
    elastic: bool = True
    #: the groups of a LeaderWorkerSet keep their size
    group_size_stays: bool = True
    #: annotations that name Workloads and pod groups go before labels
    annotated_identifiers: bool = True

    def kind(self, api_version: str, kind: str) -> bool:
        """Whether jobs of this kind are managed."""
        return (api_version.rpartition("/")[0], kind) not in self.unlisted

    @property
    def pods(self) -> bool:
        """Whether plain pods are queued."""
        return FRAMEWORKS[PODS] not in self.unlisted

    @property
    def pods_of(self) -> frozenset[str]:
        """The frameworks whose pods wait in the place of their owners."""
        return frozenset(name for name, kind in BY_PODS.items() if kind not in self.unlisted)

    def namespace(self, labels: Mapping[str, str]) -> bool:
        """Whether a namespace with these labels is selected."""
        expressions = self.selector.expressions if self.selector is not None else ()
        return all(expression_matches(expression, labels) for expression in expressions)

    def asks_namespace(self, *, queued: bool) -> bool:
        """Whether it depends on the namespace that a job is managed which does or does not name a queue."""
        return self.selector is not None and (not queued or self.selector_holds_for_queued)


def load(root: Json, gates: Gates) -> ManagedJobs:
    """The jobs that are managed. Raises ConfigurationError."""
    integrations = mapping(root.get("integrations"), "integrations")
    written = root.get(_SELECTOR)
    chosen = None if written is None else selectors.selector(mapping(written, _SELECTOR), _SELECTOR)
    if chosen is not None:
        _check_exempts(chosen, str(root.get("namespace") or ""))
    return ManagedJobs(
        without_queue=flag(root, "manageJobsWithoutQueueName"),
        selector=chosen,
        selector_holds_for_queued=gates.on("ManagedJobsNamespaceSelectorAlwaysRespected"),
        unlisted=_unlisted_in(integrations),
        declared=declared_kinds.load(integrations.get("declared") or []),
        external=_external(cast("list[str]", integrations.get("externalFrameworks") or [])),
        queue_by_default="LocalQueueDefaulting" not in gates.given or gates.on("LocalQueueDefaulting"),
        priority_by_default=gates.on("WorkloadPriorityClassDefaulting"),
        leaving_checked=gates.on("ValidateRayAndSparkJobUpdates"),
        elastic=gates.on("ElasticJobsViaWorkloadSlices"),
        group_size_stays=gates.on("LWSImmutableGroupSize"),
        annotated_identifiers=gates.on("WorkloadIdentifierAnnotations"),
    )


def _unlisted_in(integrations: Json) -> frozenset[tuple[str, str]]:
    listed = cast("list[str]", integrations.get("frameworks") or list(BY_DEFAULT))
    for i, name in enumerate(listed):
        path = f"integrations.frameworks[{i}]"
        if name in listed[:i]:
            raise ConfigurationError(f"{path}: {name} is listed twice")
        if name in DROPPED:
            raise ConfigurationError(f"{path}: {name} is not queued: {DROPPED[name]}. Take it out of the list")
        if name not in FRAMEWORKS:
            raise ConfigurationError(f"{path}: {str(name)[:80]!r} is not one of {', '.join(sorted(FRAMEWORKS))}")
    return _unlisted(listed)


def _external(listed: list[str]) -> tuple[Resource, ...]:
    """`integrations.externalFrameworks`. Raises ConfigurationError."""
    where = "integrations.externalFrameworks"
    if len(listed) > MOST_EXTERNAL:
        raise ConfigurationError(f"{where}: at most {MOST_EXTERNAL} kinds can be listed")
    found: list[Resource] = []
    for i, name in enumerate(listed):
        try:
            found.append(others.kind(name))
        except others.NoKindError:
            continue  # `unheeded` says so
        except ValueError as error:
            raise ConfigurationError(f"{where}[{i}]: {error}") from None
    return tuple(dict.fromkeys(each for each in found if not jobkinds.is_built_in(each.group, each.kind)))


def unheeded(root: Json) -> list[str]:
    """A sentence about each setting that has no effect, or is taken although Kueue refuses it."""
    found: list[str] = []
    where = "integrations.externalFrameworks"
    listed = cast("list[str]", mapping(root.get("integrations"), "integrations").get("externalFrameworks") or [])
    for i, name in enumerate(listed):
        try:
            others.kind(name)
        except others.NoKindError as error:
            found.append(f"{where}[{i}]: {error}, as in Kueue")
    written = root.get(_SELECTOR)
    if written is not None and not root.get("namespace"):
        chosen = selectors.selector(mapping(written, _SELECTOR), _SELECTOR)
        if ManagedJobs(selector=chosen).namespace({_NAME: names.KUEUE_NAMESPACE}):
            found.append(
                f"{_SELECTOR}: it selects {names.KUEUE_NAMESPACE}, which a Kueue that runs there refuses; where Kueue runs in "
                "another namespace, write that one as `namespace`: both hold their Lease there, so only one of them decides"
            )
    return found


def _unlisted(listed: Collection[str]) -> frozenset[tuple[str, str]]:
    return frozenset(kind for name, kind in FRAMEWORKS.items() if name not in listed)


def _check_exempts(chosen: model.LabelSelector, own: str) -> None:
    """Check that the system's namespaces are not selected, as Kueue does. `own`: Kueue's namespace, where the file names it; ""
    else. Raises ConfigurationError.
    """
    for namespace in filter(None, dict.fromkeys(("kube-system", own))):
        if ManagedJobs(selector=chosen).namespace({_NAME: namespace}):
            raise ConfigurationError(f'{_SELECTOR}: should not match the "{namespace}" namespace')


#: without a configuration file
EVERY_QUEUED: Final = ManagedJobs(unlisted=_unlisted(BY_DEFAULT))
