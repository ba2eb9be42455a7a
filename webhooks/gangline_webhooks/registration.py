"""Which requests reach the webhooks: the webhook configurations and the conversion of the CRDs, as JSON.

What is *not* here matters as much. Pods never pass through us, unless the configuration has them queued; neither do writes that
change nothing a rule looks at, nor status writes that break no rule: such conditions are CEL and cost the API server
microseconds, where a call costs it and us milliseconds. A job that names no queue depends on us for nothing: its webhooks are
ignored when we are down.

Versions: rules list all versions that are served, so that every object arrives as it was written: the legacy form of a
v1beta1 ClusterQueue would be lost in a conversion. A version that is not listed, served by a newer CRD than we know, arrives
converted to one that is (matchPolicy Equivalent), so nobody gets past a rule with it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from gangline.api import jobkinds, names
from gangline.api.jobkinds import own
from gangline.api.jobkinds.declaration import SPEC_SUSPEND, Declaration, Suspension
from gangline.api.read.configuration.managed_jobs import ManagedJobs
from gangline.kube import resources
from gangline.kube.resources import Json, Resource
from gangline_webhooks import conditions

NAME: Final = "gangline"
#: seconds; the first where a decision is required, the second where no request should wait for us
PATIENT: Final = 5
BRIEF: Final = 2

_CREATE: Final = ("CREATE",)
_WRITE: Final = ("CREATE", "UPDATE")
_BOTH_VERSIONS: Final = ("v1beta1", "v1beta2")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How API servers reach the webhooks: by URL (local control plane) or through a service."""

    url: str = ""
    service: str = ""
    namespace: str = ""
    port: int = 443

    def client_config(self, path: str, bundle: bytes | None) -> Json:
        """`clientConfig` for one path. Without a bundle (cert-manager injects it) the field is left out."""
        config: Json = {"url": f"{self.url}{path}"} if self.url else {"service": self._service(path)}
        if bundle is not None:
            config["caBundle"] = base64.b64encode(bundle).decode()
        return config

    def _service(self, path: str) -> Json:
        return {"name": self.service, "namespace": self.namespace, "port": self.port, "path": path}


@dataclass(frozen=True, slots=True)
class _Rule:
    operations: tuple[str, ...]
    resources: tuple[Resource, ...]  # of one group
    versions: tuple[str, ...] = ()  # default: the versions of the resources
    subresource: str = ""

    def json(self) -> Json:
        return {
            "apiGroups": [self.resources[0].group],
            "apiVersions": list(self.versions or (self.resources[0].version,)),
            "resources": ["/".join(filter(None, (each.plural, self.subresource))) for each in self.resources],
            "operations": list(self.operations),
            "scope": "*",
        }


@dataclass(frozen=True, slots=True)
class _Webhook:
    name: str
    rules: tuple[_Rule, ...]
    when: tuple[str, ...]  # CEL; all must hold
    required: bool = True  # requests fail while the webhooks are down
    exact: bool = False  # no other versions than those of the rules

    def json(self, client_config: Json) -> Json:
        body: Json = {
            "name": f"{self.name}.{names.OWN_GROUP}",
            "clientConfig": client_config,
            "rules": [rule.json() for rule in self.rules],
            "matchPolicy": "Exact" if self.exact else "Equivalent",
            "matchConditions": [{"name": "worth-a-call", "expression": conditions.all_of(*self.when)}],
            "failurePolicy": "Fail" if self.required else "Ignore",
            "timeoutSeconds": PATIENT if self.required else BRIEF,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        if any(resource.namespaced for rule in self.rules for resource in rule.resources):
            excluded = list(names.EXCLUDED_NAMESPACES)
            requirement = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": excluded}
            body["namespaceSelector"] = {"matchExpressions": [requirement]}
        return body


def _jobs(operations: tuple[str, ...], kinds: Iterable[Declaration]) -> tuple[_Rule, ...]:
    """One rule for each kind; a kind that is not installed costs nothing."""
    return tuple(_Rule(operations, (each.resource,)) for each in kinds)


def _by_suspension() -> dict[Suspension, list[Declaration]]:
    """The kinds that are only declared, by where they keep their suspend field: the conditions look at it."""
    found: dict[Suspension, list[Declaration]] = {}
    for each in jobkinds.known():
        if each.behaviour is not None:
            found.setdefault(each.suspension, []).append(each)
    return found


def _name_of(suspension: Suspension) -> str:
    """A part of the name of a webhook: spec-runpolicy-suspend."""
    return re.sub("[^a-z0-9]+", "-", suspension.shown.lower()).strip("-") + ("-inverted" if suspension.inverted else "")


#: the webhook of jobs that name no queue
OTHER_JOBS: Final = "other-jobs.mutating"
#: that of kinds whose pods wait in their place
OTHER_SERVING: Final = "other-serving.mutating"

_MUTATING_CONFIGURATION: Final = (
    _Webhook(
        "configuration.mutating",
        (_Rule(_CREATE, (resources.CLUSTER_QUEUES, resources.RESOURCE_FLAVORS), _BOTH_VERSIONS),),
        (conditions.SPEC_CHANGED,),
    ),
    _Webhook(
        "legacy-queues.mutating",  # the legacy form, applied again
        (_Rule(("UPDATE",), (resources.CLUSTER_QUEUES,), ("v1beta1",)),),
        (conditions.SPEC_CHANGED,),
        exact=True,
    ),
)


def _children(namespace: str) -> tuple[_Webhook, ...]:
    """The webhooks of jobs that belong to others: by where they keep their suspend field."""
    by_suspension = {SPEC_SUSPEND: list(own.KINDS)}
    for suspension, kinds in _by_suspension().items():
        by_suspension.setdefault(suspension, []).extend(kinds)
    return tuple(
        _Webhook(
            f"children.{_name_of(suspension)}.mutating",
            _jobs(_WRITE, kinds),
            (conditions.starts_below(suspension, namespace),),
        )
        for suspension, kinds in by_suspension.items()
    )


def _mutating(namespace: str) -> tuple[_Webhook, ...]:
    """`namespace`: that of the operator and its service account, "" = it has none."""
    return (
        *_MUTATING_CONFIGURATION,
        _Webhook(
            "queued-jobs.mutating",
            _jobs(_WRITE, own.KINDS),
            (conditions.NAMES_QUEUE, f"{conditions.LACKS_DEFAULTS} || ({conditions.RESIZED_AT_WORK})"),
        ),
        *(
            _Webhook(
                f"queued-jobs.{_name_of(suspension)}.mutating",
                _jobs(_WRITE, kinds),
                (
                    conditions.NAMES_QUEUE,
                    f"{conditions.LACKS_DEFAULTS} || ({conditions.changed_at_work(suspension)})",
                ),
            )
            for suspension, kinds in _by_suspension().items()
        ),
        _Webhook(
            OTHER_JOBS,  # for the namespace's default LocalQueue, and for manageJobsWithoutQueueName
            _jobs(_CREATE, (each for each in jobkinds.known() if not each.by_pods)),
            (conditions.NAMES_NO_QUEUE, conditions.stands_alone()),
            required=False,
        ),
        *_children(namespace),
        # a template is marked again with every change, since it may have been replaced by one without its marks
        _Webhook(
            "queued-serving.mutating",
            _jobs(_WRITE, own.SERVING_KINDS),
            (conditions.NAMES_QUEUE, conditions.SERVING_CHANGED),
        ),
        _Webhook(
            OTHER_SERVING,
            _jobs(_WRITE, own.SERVING_KINDS),
            (
                conditions.NAMES_NO_QUEUE,
                conditions.IS_NEW_OR_MARKED,
                conditions.stands_alone(),
                conditions.SERVING_CHANGED,
            ),
            required=False,
        ),
    )


_CONFIGURATION: Final = (
    resources.CLUSTER_QUEUES,
    resources.COHORTS,
    resources.RESOURCE_FLAVORS,
    resources.LOCAL_QUEUES,
    resources.TOPOLOGIES,
    resources.ADMISSION_CHECKS,
    resources.MULTI_KUEUE_CONFIGS,
    resources.MULTI_KUEUE_CLUSTERS,
)
_VALIDATING_REST: Final = (
    _Webhook(
        "configuration.validating",
        (
            _Rule(_WRITE, _CONFIGURATION, _BOTH_VERSIONS),
            _Rule(
                _WRITE,
                (resources.QUEUE_POLICIES, resources.RESERVATIONS, resources.QUOTA_PLANS, resources.JOB_PROFILES),
            ),
        ),
        (conditions.SPEC_CHANGED,),
    ),
    _Webhook(
        "queued-jobs.validating",
        (_Rule(_WRITE, (resources.JOBS,)),),
        (conditions.NAMES_OR_NAMED_QUEUE, conditions.JOB_CHANGED),
    ),
    _Webhook(
        "queued-jobsets.validating",
        (_Rule(_WRITE, (resources.JOB_SETS,)),),
        (conditions.NAMES_OR_NAMED_QUEUE, conditions.JOB_SET_CHANGED),
    ),
    _Webhook(
        "queued-gpujobs.validating",
        (_Rule(_WRITE, (resources.GPU_JOBS,)),),
        (conditions.NAMES_OR_NAMED_QUEUE, conditions.GPU_JOB_CHANGED),
    ),
    _Webhook(
        "other-gpujobs.validating",
        (_Rule(_WRITE, (resources.GPU_JOBS,)),),
        (conditions.NEITHER_NAMES_NOR_NAMED_QUEUE, conditions.GPU_JOB_CHANGED),
        required=False,
    ),
    _Webhook(
        "queued-serving.validating",
        _jobs(_WRITE, own.SERVING_KINDS),
        (conditions.NAMES_OR_NAMED_QUEUE, conditions.SERVING_CHANGED),
    ),
    _Webhook(
        "workload-statuses.validating",
        (_Rule(("UPDATE",), (resources.WORKLOADS,), _BOTH_VERSIONS, "status"),),
        (conditions.STATUS_IS_QUESTIONABLE,),
    ),
)

#: where pods are queued themselves: the webhook of those that name no queue
OTHER_PODS: Final = "other-pods.mutating"


class GatedPods(Enum):
    """Which pods wait at a gate: none; those of owners that are queued by their pods; these and plain pods."""

    NONE = auto()
    HELD = auto()
    ALL = auto()

    @classmethod
    def of(cls, managed: ManagedJobs) -> GatedPods:
        return cls.ALL if managed.pods else cls.HELD if managed.pods_of else cls.NONE


def _pods_mutating(pods: GatedPods) -> tuple[_Webhook, ...]:
    if pods is GatedPods.NONE:
        return ()
    if pods is GatedPods.HELD:
        return (_Webhook("queued-pods.mutating", (_Rule(_CREATE, (resources.PODS,)),), (conditions.HELD_BY_PARENT,)),)
    return (
        _Webhook("queued-pods.mutating", (_Rule(_CREATE, (resources.PODS,)),), (conditions.WAITS,)),
        _Webhook(
            OTHER_PODS,
            (_Rule(_CREATE, (resources.PODS,)),),
            (conditions.MAY_WAIT, conditions.stands_alone()),
            required=False,
        ),
    )


def _pods_validating(pods: GatedPods) -> tuple[_Webhook, ...]:
    if pods is GatedPods.NONE:
        return ()
    which = conditions.IS_OURS if pods is GatedPods.ALL else conditions.HELD_BY_PARENT
    rules = (_Rule(_WRITE, (resources.PODS,)),)
    return (_Webhook("queued-pods.validating", rules, (which, conditions.CHANGED)),)


def _validating() -> tuple[_Webhook, ...]:
    return (
        *_VALIDATING_REST,
        *(
            _Webhook(
                f"queued-jobs.{_name_of(suspension)}.validating",
                _jobs(_WRITE, kinds),
                (conditions.NAMES_OR_NAMED_QUEUE, conditions.declared_job_changed(suspension)),
            )
            for suspension, kinds in _by_suspension().items()
        ),
        _Webhook(
            "workloads.validating",
            (_Rule(_WRITE, (resources.WORKLOADS,), _BOTH_VERSIONS),),
            (conditions.workload_is_questionable(),),
        ),
    )


def configurations(
    endpoint: Endpoint, bundle: bytes | None, inject_from: str = "", *, pods: GatedPods = GatedPods.NONE
) -> dict[Resource, Json]:
    """The two webhook configurations. `inject_from` is the `namespace/name` of a cert-manager Certificate.

    `pods`: which pods are queued.
    """
    mutating = (*_mutating(endpoint.namespace), *_pods_mutating(pods))
    validating = (*_validating(), *_pods_validating(pods))
    return {
        resources.MUTATING_WEBHOOKS: _configuration(
            resources.MUTATING_WEBHOOKS, mutating, endpoint.client_config("/mutate", bundle), inject_from
        ),
        resources.VALIDATING_WEBHOOKS: _configuration(
            resources.VALIDATING_WEBHOOKS, validating, endpoint.client_config("/validate", bundle), inject_from
        ),
    }


def requiring_every_job(configurations: dict[Resource, Json]) -> dict[Resource, Json]:
    """The same for manageJobsWithoutQueueName: no job starts while the webhooks are down, whether it names a queue or not."""
    others = {f"{each}.{names.OWN_GROUP}" for each in (OTHER_JOBS, OTHER_SERVING, OTHER_PODS)}
    for webhook in configurations[resources.MUTATING_WEBHOOKS]["webhooks"]:
        if webhook["name"] in others:
            webhook |= {"failurePolicy": "Fail", "timeoutSeconds": PATIENT}
    return configurations


def conversion(endpoint: Endpoint, bundle: bytes | None) -> Json:
    """`spec.conversion` of a CRD whose versions differ."""
    client_config = endpoint.client_config("/convert", bundle)
    return {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client_config}}


def is_ours(conversion: Json, endpoint: Endpoint) -> bool:
    """Whether `spec.conversion` of a CRD leads to these webhooks, on whichever port."""
    config = (conversion.get("webhook") or {}).get("clientConfig") or {}
    if endpoint.url:
        return str(config.get("url", "")).rpartition(":")[0] == endpoint.url.rpartition(":")[0]
    service = config.get("service") or {}
    return (service.get("namespace"), service.get("name")) == (endpoint.namespace, endpoint.service)


def _configuration(resource: Resource, webhooks: tuple[_Webhook, ...], client_config: Json, inject_from: str) -> Json:
    meta: Json = {"name": NAME, "labels": {"app.kubernetes.io/part-of": "gangline"}}
    if inject_from:
        meta["annotations"] = {"cert-manager.io/inject-ca-from": inject_from}
    bodies = [webhook.json(client_config) for webhook in webhooks]
    if resource is resources.MUTATING_WEBHOOKS:
        for body in bodies:  # another webhook may name the queue after ours
            body["reinvocationPolicy"] = "IfNeeded"
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "webhooks": bodies}
