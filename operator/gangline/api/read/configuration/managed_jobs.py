"""Which jobs are managed: those of listed kinds in selected namespaces that name a queue, or all of them.

Read from `manageJobsWithoutQueueName`, `managedJobsNamespaceSelector` and `integrations`. The operator and the webhooks both
decide by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from gangline.api import names
from gangline.api.read.configuration import selectors
from gangline.api.read.configuration.fields import ConfigurationError, flag, mapping
from gangline.api.read.configuration.gates import Gates
from gangline.engine import expression_matches, model
from gangline.kube.resources import Json

#: Kueue's name of a job kind -> its group and kind, as far as Gangline has it
FRAMEWORKS: Final[Mapping[str, tuple[str, str]]] = {
    "batch/job": ("batch", "Job"),
    "jobset.x-k8s.io/jobset": ("jobset.x-k8s.io", "JobSet"),
}
#: job kinds of Kueue that Gangline does not have
MISSING: Final = frozenset(
    {
        *("deployment", "kubeflow.org/jaxjob", "kubeflow.org/mpijob", "kubeflow.org/paddlejob"),
        *("kubeflow.org/pytorchjob", "kubeflow.org/tfjob", "kubeflow.org/xgboostjob"),
        *("leaderworkerset.x-k8s.io/leaderworkerset", "pod", "ray.io/raycluster", "ray.io/rayjob", "ray.io/rayservice"),
        *("sparkoperator.k8s.io/sparkapplication", "statefulset", "trainer.kubeflow.org/trainjob"),
        "workload.codeflare.dev/appwrapper",
    }
)
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
    unlisted: frozenset[tuple[str, str]] = frozenset()
    #: a job that names no queue gets that of its namespace, and one that names no priority class the default one
    queue_by_default: bool = True
    priority_by_default: bool = True

    def kind(self, api_version: str, kind: str) -> bool:
        """Whether jobs of this kind are managed."""
        return (api_version.rpartition("/")[0], kind) not in self.unlisted

    def namespace(self, labels: Mapping[str, str]) -> bool:
        """Whether a namespace with these labels is selected."""
        expressions = self.selector.expressions if self.selector is not None else ()
        return all(expression_matches(expression, labels) for expression in expressions)

    def asks_namespace(self, *, queued: bool) -> bool:
        """Whether it depends on the namespace that a job is managed which does or does not name a queue."""
        return self.selector is not None and (not queued or self.selector_holds_for_queued)


#: without a configuration file
EVERY_QUEUED: Final = ManagedJobs()


def load(root: Json, gates: Gates) -> tuple[ManagedJobs, list[str]]:
    """The jobs that are managed, and a warning for each listed kind that Gangline does not have. Raises ConfigurationError."""
    unlisted, warnings = _frameworks(mapping(root.get("integrations"), "integrations"))
    written = root.get(_SELECTOR)
    chosen = None if written is None else selectors.selector(mapping(written, _SELECTOR), _SELECTOR)
    if chosen is not None:
        _check_exempts(chosen, str(root.get("namespace") or names.KUEUE_NAMESPACE))
    managed = ManagedJobs(
        without_queue=flag(root, "manageJobsWithoutQueueName"),
        selector=chosen,
        selector_holds_for_queued=gates.on("ManagedJobsNamespaceSelectorAlwaysRespected"),
        unlisted=unlisted,
        queue_by_default="LocalQueueDefaulting" not in gates.given or gates.on("LocalQueueDefaulting"),
        priority_by_default=gates.on("WorkloadPriorityClassDefaulting"),
    )
    return managed, warnings


def _frameworks(integrations: Json) -> tuple[frozenset[tuple[str, str]], list[str]]:
    listed = cast("list[str]", integrations.get("frameworks") or list(FRAMEWORKS))
    warnings: list[str] = []
    for i, name in enumerate(listed):
        path = f"integrations.frameworks[{i}]"
        if name in listed[:i]:
            raise ConfigurationError(f"{path}: {name} is listed twice")
        if name in MISSING:
            warnings.append(f"{path}: Gangline does not manage {name}: such jobs start without quota")
        elif name not in FRAMEWORKS:
            known = ", ".join(sorted({*FRAMEWORKS, *MISSING}))
            raise ConfigurationError(f"{path}: {str(name)[:80]!r} is not one of {known}")
    return frozenset(kind for name, kind in FRAMEWORKS.items() if name not in listed), warnings


def _check_exempts(chosen: model.LabelSelector, own: str) -> None:
    """As in Kueue: the system's namespaces must not be selected."""
    for namespace in dict.fromkeys(("kube-system", own)):
        if ManagedJobs(selector=chosen).namespace({_NAME: namespace}):
            raise ConfigurationError(f'{_SELECTOR}: should not match the "{namespace}" namespace')
