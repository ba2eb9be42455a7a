"""RBAC permissions of the operator and the webhooks: one table, and the manifests generated from it.

A process that lacks a permission logs the API server's message. `tests/cluster` runs every operator and the webhooks with
exactly these permissions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gangline.api import jobkinds, names
from gangline.api.admission.of_jobs.jobs import queued_owners
from gangline.api.jobkinds import Declaration
from gangline.api.jobkinds.others import others
from gangline.api.read.autoscalers import STATUS_MAP as AUTOSCALER_STATUS
from gangline.api.read.configuration.manager import KUEUES, LeaseSettings
from gangline.api.schema.kinds import CONVERTED
from gangline.control.answers.api import api_service, discovery, front_proxy
from gangline.control.answers.api.access_review import REVIEWS
from gangline.control.nodes.recovery.silent_nodes import NAMESPACE as NODE_LEASES
from gangline.control.process import leader_endpoint
from gangline.control.process.token_review import TOKEN_REVIEWS
from gangline.jobs.serving import BY_RESOURCE as SERVING
from gangline.kube import field_tracking, ownership
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource
from gangline.record.following import watched
from gangline_webhooks import registration, unqueued_kinds
from gangline_webhooks.certificate_store import SECRET
from gangline_webhooks.facts import PLAN_CHECKS

READ: Final = ("get", "list", "watch")
#: on jobs; delete: where the configuration says how long deactivated ones are kept
RUN: Final = (*READ, "patch", "delete")
_GROUP: Final = "rbac.authorization.k8s.io"
_LABELS: Final = {"app.kubernetes.io/part-of": "gangline"}
#: the Role, present in every cluster, that lets extension API servers read the front-proxy CA
_TRUST: Final = f"{front_proxy.CONFIG_MAP}-reader"


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on a kind or one of its subresources; with `names`, only on objects with these names."""

    resource: Resource
    verbs: tuple[str, ...]
    subresource: str = ""
    names: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """A service account in `gangline-system`: its permissions in all namespaces, and those in its own namespace. `elected`: it
    needs the Lease, too.
    """

    name: str
    purpose: str
    everywhere: tuple[Right, ...]
    at_home: tuple[Right, ...]
    elected: bool = False


def _status(*resources: Resource) -> Iterable[Right]:
    return (Right(resource, ("patch",), "status") for resource in resources)


def _owned_by(*resources: Resource) -> Iterable[Right]:
    """Permission to set blockOwnerDeletion, which clusters with OwnerReferencesPermissionEnforcement require."""
    return (Right(resource, ("update",), "finalizers") for resource in resources)


def _own_role(name: str) -> Right:
    """The owner of what the process makes at run time."""
    return Right(ownership.CLUSTER_ROLES, ("get",), names=(name,))


OPERATOR: Final = ServiceAccount(
    ownership.OPERATOR,
    "What `gangline admin operator` needs.",
    everywhere=(
        # inputs of decisions
        Right(kube.COHORTS, READ),
        Right(kube.LOCAL_QUEUES, READ),
        Right(kube.WORKLOAD_PRIORITY_CLASSES, READ),
        Right(kube.QUEUE_POLICIES, READ),
        Right(kube.RESERVATIONS, READ),
        Right(kube.QUOTA_PLANS, READ),
        Right(kube.JOB_PROFILES, READ),
        Right(kube.PROVISIONING_CONFIGS, READ),
        Right(kube.MULTI_KUEUE_CONFIGS, READ),
        Right(kube.MULTI_KUEUE_CLUSTERS, READ),
        Right(kube.PRIORITY_CLASSES, READ),
        Right(kube.NAMESPACES, READ),
        # what is added to the requests of pods
        Right(kube.LIMIT_RANGES, READ),
        Right(kube.RUNTIME_CLASSES, READ),
        # those of GPUJobs with shares by DRA are made, too
        Right(kube.RESOURCE_CLAIM_TEMPLATES, (*READ, "create", "delete")),
        Right(kube.DEVICE_CLASSES, READ),
        # the cards of nodes, and who got which
        Right(kube.RESOURCE_SLICES, READ),
        # their pods that are placed get claims for their cards
        Right(kube.RESOURCE_CLAIMS, (*READ, "create", "delete")),
        Right(kube.NODES, READ),
        # patch: finalizers keep an object while others use it
        Right(kube.ADMISSION_CHECKS, (*READ, "patch")),
        Right(kube.TOPOLOGIES, (*READ, "patch")),
        Right(kube.CLUSTER_QUEUES, (*READ, "patch")),
        Right(kube.RESOURCE_FLAVORS, (*READ, "patch")),
        Right(kube.WORKLOADS, (*READ, "create", "patch", "delete")),
        # jobs are suspended and resumed; a GPUJob has Jobs and a Service of its own
        Right(kube.JOBS, (*READ, "create", "patch", "delete")),
        *(Right(each.resource, RUN) for each in jobkinds.BUILT_IN if each.optional and not each.by_pods),
        # what describes the pods of a job
        *(Right(resource, READ) for each in jobkinds.BUILT_IN for resource in each.descriptions),
        # those whose pods wait in their place are not written
        *(Right(resource, READ) for resource in SERVING),
        # those that name a queue and are not queued are shown
        *(Right(each, READ) for each in others(jobkinds.BUILT_IN)),
        Right(kube.SERVICES, (*READ, "create")),
        # admission checks by requests to a cluster autoscaler; patch: a template passes to its request
        Right(kube.PROVISIONING_REQUESTS, (*READ, "create", "delete")),
        Right(kube.POD_TEMPLATES, (*READ, "create", "patch", "delete")),
        # whether a cluster autoscaler makes more nodes of a flavor; its ConfigMap is read in its namespace, by name alone
        Right(kube.NODE_POOLS, ("list",)),
        Right(kube.CONFIG_MAPS, ("get",), names=(AUTOSCALER_STATUS[1],)),
        # pods are ungated with their node assignment, and deleted when they are lost with their node
        Right(kube.PODS, (*READ, "patch", "delete")),
        # pods that can't end are reported as failed, where the configuration says so
        *_status(kube.PODS),
        *_status(kube.CLUSTER_QUEUES, kube.COHORTS, kube.LOCAL_QUEUES, kube.WORKLOADS),
        # pods: one that is stopped says why
        *_status(kube.QUEUE_POLICIES, kube.RESERVATIONS, kube.QUOTA_PLANS, kube.JOB_PROFILES, kube.GPU_JOBS, kube.JOBS),
        *_status(kube.ADMISSION_CHECKS, kube.PODS),
        # whether other clusters are connected; and how far jobs are that run there
        *_status(
            kube.MULTI_KUEUE_CLUSTERS,
            *(each.resource for each in jobkinds.BUILT_IN if each.managed_by and each.optional),
        ),
        *_owned_by(*(each.resource for each in jobkinds.BUILT_IN if not each.by_pods)),
        # list: the Job controller says by events that pods are refused
        Right(kube.EVENTS, ("create", "patch", "list")),
        _own_role(ownership.OPERATOR),
        # checks whether the webhooks have created the policy
        Right(kube.MUTATING_POLICIES, ("get",), names=(field_tracking.NAME,)),
        Right(kube.MUTATING_POLICY_BINDINGS, ("get",), names=(field_tracking.NAME,)),
        # Kueue's visibility API, Gangline's answers and secured metrics: who asks, and what that user may see
        Right(REVIEWS, ("create",)),
        Right(TOKEN_REVIEWS, ("create",)),
        # registration of both APIs with API servers
        Right(
            api_service.API_SERVICES,
            ("get", "create", "patch", "delete"),
            names=tuple(f"{version}.{group.name}" for group in discovery.GROUPS for version in group.versions),
        ),
    ),
    at_home=(
        Right(kube.CONFIG_MAPS, ("create", "patch"), names=(leader_endpoint.CONFIG_MAP,)),
        Right(kube.SERVICES, ("create", "patch"), names=(api_service.SERVICE,)),
        Right(api_service.ENDPOINTS, ("create", "patch"), names=(api_service.SERVICE,)),
        Right(api_service.ENDPOINT_SLICES, ("create", "patch"), names=(api_service.SERVICE,)),
    ),
    elected=True,
)

WEBHOOKS: Final = ServiceAccount(
    ownership.WEBHOOKS,
    "What `gangline admin webhooks` needs.",
    everywhere=(
        Right(kube.LOCAL_QUEUES, ("get",)),
        # whether the jobs of a queue run in other clusters
        Right(kube.CLUSTER_QUEUES, ("get",)),
        Right(kube.ADMISSION_CHECKS, ("get",)),
        Right(kube.WORKLOAD_PRIORITY_CLASSES, ("get",)),
        # PriorityClasses and Namespaces: which classes jobs may name there, and what they are worth
        Right(kube.PRIORITY_CLASSES, ("get",)),
        Right(kube.NAMESPACES, ("get",)),  # also for managedJobsNamespaceSelector
        # what describes the pods of a job: whether it has a place for all that the job asks for
        *(Right(resource, ("get",)) for each in jobkinds.BUILT_IN for resource in each.descriptions),
        # checks whether an owner of a job is itself queued
        *(Right(Resource(group, "", f"{kind.lower()}s"), ("get",)) for group, kind in sorted(queued_owners())),
        Right(kube.PODS, ("get",)),  # a driver of Spark owns its executors
        Right(kube.WORKLOADS, ("get",)),  # whether the GPUJob to which a new Job belongs is admitted
        # what keeps a Reservation or QuotaPlan from being honoured, as the operator says
        Right(PLAN_CHECKS, ("create",)),
        _own_role(ownership.WEBHOOKS),
        Right(kube.MUTATING_WEBHOOKS, ("create",)),
        Right(kube.MUTATING_WEBHOOKS, ("get", "update", "delete"), names=(registration.NAME,)),
        Right(kube.VALIDATING_WEBHOOKS, ("create",)),
        Right(kube.VALIDATING_WEBHOOKS, ("get", "update", "delete"), names=(registration.NAME,)),
        Right(kube.MUTATING_POLICIES, ("create",)),
        Right(kube.MUTATING_POLICIES, ("get",), names=(field_tracking.NAME,)),
        Right(kube.MUTATING_POLICY_BINDINGS, ("create",)),
        Right(kube.MUTATING_POLICY_BINDINGS, ("get",), names=(field_tracking.NAME,)),
        # the policy that warns of queue labels on kinds that are not queued
        Right(kube.VALIDATING_POLICIES, ("create",)),
        Right(kube.VALIDATING_POLICIES, ("get", "update", "delete"), names=(unqueued_kinds.NAME,)),
        Right(kube.VALIDATING_POLICY_BINDINGS, ("create",)),
        Right(kube.VALIDATING_POLICY_BINDINGS, ("get", "update", "delete"), names=(unqueued_kinds.NAME,)),
        Right(kube.CUSTOM_RESOURCE_DEFINITIONS, ("get", "patch"), names=tuple(kind.name for kind in CONVERTED)),
    ),
    at_home=(
        Right(kube.SECRETS, ("create",)),
        Right(kube.SECRETS, ("get", "update"), names=(SECRET,)),
    ),
)

#: not part of an installation: it reads, beside Kueue or Gangline
RECORDER: Final = ServiceAccount(
    ownership.RECORDER,
    "What `gangline admin record` needs: to read what it records, and no more.",
    everywhere=tuple(Right(resource, ("list", "watch")) for resource in watched()),
    at_home=(),
)

ACCOUNTS: Final = (OPERATOR, WEBHOOKS)
#: the Role by which the operator reads kubeconfigs of other clusters
CLUSTER_SECRETS: Final = f"{OPERATOR.name}-cluster-secrets"
#: what the operator reads beside those, in the namespace of Kueue, where its configuration allows ClusterProfiles
PROFILES: Final = Right(kube.CLUSTER_PROFILES, READ)
#: what a manager cluster needs in each of its worker clusters, besides the jobs that it sends
WORKER: Final = (Right(kube.WORKLOADS, (*READ, "create", "patch", "delete")), *_status(kube.WORKLOADS))
#: on each kind of these; those with fields that follow the job here are patched, too
_SENT: Final = (*READ, "create", "delete")


#: what a person needs to ask Gangline (`queue`, `why`, `eta`, `share`, `history`, …), in a namespace or in all. Jobs are shown in
#: full where the person may also list Workloads. A WhatIf is a review: creating one stores nothing.
PEOPLE: Final = tuple(
    Right(Resource(discovery.ANSWERS.name, discovery.ANSWERS.versions[-1], each.plural), each.verbs, each.subresource)
    for each in discovery.ANSWERS.resources
    if each.for_people
)


def recorder(declared: Sequence[Declaration] = ()) -> list[Json]:
    """The namespace, the service account, the role and the binding for `gangline admin record`; `declared`: more job kinds."""
    more = [Right(each.resource, ("list", "watch")) for each in declared]
    return [
        {"apiVersion": "v1", **_head("Namespace", names.SYSTEM_NAMESPACE)},
        {"apiVersion": "v1", **_head("ServiceAccount", RECORDER.name, names.SYSTEM_NAMESPACE)},
        *_granted(RECORDER.name, RECORDER, (*RECORDER.everywhere, *more)),
    ]


def people_rules() -> list[Json]:
    """The RBAC rules of `PEOPLE`, for roles of users and viewers."""
    return _rules(PEOPLE)


def worker_role(name: str, sent: Iterable[Resource] = (kube.JOBS, kube.JOB_SETS), *, quotas: bool = False) -> Json:
    """The ClusterRole for the account by which a manager cluster logs in to a worker cluster; `sent`: the kinds of jobs.

    `quotas`: the manager sums up the quotas of its workers.
    """
    queues = [Right(each, READ) for each in (kube.CLUSTER_QUEUES, kube.LOCAL_QUEUES)] if quotas else []
    rules = _rules(
        [*WORKER, *queues, *(Right(each, (*_SENT, "patch") if _is_followed(each) else _SENT) for each in sent)]
    )
    return {"apiVersion": f"{_GROUP}/v1", **_head("ClusterRole", name), "rules": rules}


def _is_followed(resource: Resource) -> bool:
    declaration = jobkinds.declaration_of(resource.group, resource.kind)
    return declaration is not None and (
        bool(declaration.followed) or (declaration.elastic and not declaration.sized_by)
    )


# --- manifests ----------------------------------------------------------------------------------------------------------


def manifests(
    notify_secrets: Sequence[str] = (),
    lease: LeaseSettings = KUEUES,
    *,
    cluster_secrets: Sequence[str] = (),
    cluster_profiles: str = "",
    probe_nodes: bool = False,
    cordon_nodes: bool = False,
    declared: Sequence[Declaration] = (),
    external: Sequence[Resource] = (),
    sent: Sequence[Resource] = (),
) -> list[Json]:
    """The namespaces, both service accounts, their roles and bindings, in an order in which they can be applied.

    `lease`: usually Kueue's, in Kueue's namespace, which may hold Kueue itself and is not Gangline's to remove.

    `notify_secrets`: the Secrets that QueuePolicies name, each as `namespace/name`, or `name` in Gangline's own namespace. The
    operator can read only these Secrets, because the namespace also holds private keys such as the webhooks'.

    `cluster_secrets`: the Secrets with kubeconfigs that MultiKueueClusters name, each as `namespace/name`, or `name` in Kueue's
    namespace.

    `cluster_profiles`: the namespace of ClusterProfiles, "" = MultiKueueClusters name none.

    `probe_nodes`: QueuePolicies may ask for `recovery.probeNodes`, by which the operator taints nodes.

    `cordon_nodes`: the operator cordons nodes in the maintenances of Reservations.

    `declared`: the job kinds that the configuration declares; `external`: those of other controllers that it lists; `sent`: those
    of other controllers that are sent to other clusters.
    """
    made: list[Json] = [{"apiVersion": "v1", **_head("Namespace", names.SYSTEM_NAMESPACE)}]
    for account in ACCOUNTS:
        made += [
            {"apiVersion": "v1", **_head("ServiceAccount", account.name, names.SYSTEM_NAMESPACE)},
            *_granted(account.name, account, account.everywhere),
            *_granted(account.name, account, account.at_home, names.SYSTEM_NAMESPACE),
        ]
    if lease.namespace != names.SYSTEM_NAMESPACE:
        made.append(_shared_namespace(lease.namespace))
    for account in (account for account in ACCOUNTS if account.elected):
        made += _granted(f"{account.name}-lease", account, _lease_rights(lease), lease.namespace)
    made.append(_binding(f"{OPERATOR.name}-trust", OPERATOR, "Role", _TRUST, front_proxy.NAMESPACE))
    if cluster_profiles:
        made += profiles(cluster_profiles)
    if probe_nodes:
        made += probing()
    if cordon_nodes:
        made += cordoning()
    if declared:
        kinds = [each.resource for each in declared]
        progress = _status(*(each.resource for each in declared if each.managed_by))
        made += _granted(
            f"{OPERATOR.name}-declared",
            OPERATOR,
            [*(Right(each, RUN) for each in kinds), *_owned_by(*kinds), *progress],
        )
        made += _granted(f"{WEBHOOKS.name}-declared", WEBHOOKS, [Right(each, ("get",)) for each in kinds])
    if external:
        made += _granted(f"{OPERATOR.name}-external", OPERATOR, [Right(each, READ) for each in external])
        made += _granted(f"{WEBHOOKS.name}-external", WEBHOOKS, [Right(each, ("get",)) for each in external])
    if others := [each for each in sent if jobkinds.declaration_of(each.group, each.kind) is None]:
        made += _granted(
            f"{OPERATOR.name}-sent", OPERATOR, [*(Right(each, READ) for each in others), *_status(*others)]
        )
    made += _secrets(f"{OPERATOR.name}-secrets", notify_secrets, names.SYSTEM_NAMESPACE)
    made += _secrets(CLUSTER_SECRETS, cluster_secrets, names.KUEUE_NAMESPACE)
    return made


def _secrets(role: str, secrets: Sequence[str], usual: str) -> Iterable[Json]:
    """The right to read these Secrets, by their names; those without a namespace are in the `usual` one."""
    by_namespace: dict[str, list[str]] = {}
    for secret in dict.fromkeys(secrets):
        namespace, _, name = secret.rpartition("/")
        by_namespace.setdefault(namespace or usual, []).append(name)
    for namespace, found in by_namespace.items():
        yield from _granted(role, OPERATOR, [Right(kube.SECRETS, ("get",), names=tuple(found))], namespace)


def profiles(namespace: str) -> list[Json]:
    """The role and binding for MultiKueueClusters that name ClusterProfiles, which are in this namespace."""
    return _granted(f"{OPERATOR.name}-cluster-profiles", OPERATOR, [PROFILES], namespace)


def cordoning() -> list[Json]:
    """The role and binding for maintenances of Reservations: nodes are cordoned. It is asked for, as `probing` is."""
    return _granted(f"{OPERATOR.name}-cordons", OPERATOR, [Right(kube.NODES, ("patch",))])


def probing() -> list[Json]:
    """The roles and bindings for `recovery.probeNodes`. Without them and `cordoning` the operator has no hold on nodes."""
    return [
        *_granted(f"{OPERATOR.name}-nodes", OPERATOR, [Right(kube.NODES, ("patch",))]),
        *_granted(f"{OPERATOR.name}-leases", OPERATOR, [Right(kube.LEASES, ("list", "watch"))], NODE_LEASES),
    ]


def _lease_rights(lease: LeaseSettings) -> Iterable[Right]:
    yield Right(kube.LEASES, ("create",))  # RBAC can't restrict create by name
    yield Right(kube.LEASES, ("get", "update"), names=(lease.name,))


def _shared_namespace(name: str) -> Json:
    head = _head("Namespace", name)
    head["metadata"] |= {"annotations": {"helm.sh/resource-policy": "keep"}}
    del head["metadata"]["labels"]
    return {"apiVersion": "v1", **head}


def _granted(name: str, account: ServiceAccount, rights: Iterable[Right], namespace: str = "") -> list[Json]:
    """A Role in `namespace`, or a ClusterRole if `namespace` is "", with these permissions, and its binding to the account."""
    kind = "Role" if namespace else "ClusterRole"
    head = _head(kind, name, namespace)
    head["metadata"]["annotations"] = {"kubernetes.io/description": account.purpose}
    role = {"apiVersion": f"{_GROUP}/v1", **head, "rules": _rules(rights)}
    return [role, _binding(name, account, kind, name, namespace)]


def _binding(name: str, account: ServiceAccount, kind: str, role: str, namespace: str = "") -> Json:
    return {
        "apiVersion": f"{_GROUP}/v1",
        **_head("RoleBinding" if namespace else "ClusterRoleBinding", name, namespace),
        "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account.name, "namespace": names.SYSTEM_NAMESPACE}],
    }


def _rules(rights: Iterable[Right]) -> list[Json]:
    """RBAC rules; kinds of one group with the same verbs share a rule."""
    grouped: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for right in rights:
        grouped.setdefault((right.resource.group, right.verbs, right.names), []).append(right.text)
    rules: list[Json] = []
    for (group, verbs, only), resources in grouped.items():
        rule: Json = {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}
        rules.append({**rule, "resourceNames": list(only)} if only else rule)
    return rules


def _head(kind: str, name: str, namespace: str = "") -> Json:
    where = {"namespace": namespace} if namespace else {}
    return {"kind": kind, "metadata": {"name": name, **where, "labels": dict(_LABELS)}}
