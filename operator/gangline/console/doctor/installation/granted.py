"""The rights of the operator and the webhooks, compared with what `gangline admin rbac` grants, and the rights of the user."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from gangline.api import names
from gangline.api.read.configuration import Configuration, ConfigurationError, load, parse
from gangline.console.doctor.cluster import PATIENCE, ClusterReads, failure, ok, some, unknown, warning
from gangline.console.doctor.examination import Findings
from gangline.control.answers.api.access_review import REVIEWS
from gangline.install import rights
from gangline.install.inventory import SERVICE_ACCOUNTS
from gangline.install.manifests.workloads import CONFIGURATION
from gangline.install.rights import Right, ServiceAccount
from gangline.kube import resources as kube
from gangline.kube.errors import Forbidden
from gangline.kube.field_tracking import SELF_REVIEWS
from gangline.kube.resources import Json, Resource

# --- the ConfigMap that an installation's operator and webhooks read when they start ----------------------------------


_WHERE: Final = f"ConfigMap {names.SYSTEM_NAMESPACE}/{CONFIGURATION}"


async def stored(cluster: ClusterReads) -> Configuration | None:
    """The configuration of the operator in its ConfigMap; None without the ConfigMap. Raises ConfigurationError."""
    found = await cluster.get(kube.CONFIG_MAPS, names.SYSTEM_NAMESPACE, CONFIGURATION)
    return load(parse((found.get("data") or {}).get("config.yaml") or "")) if found is not None else None


async def configuration(cluster: ClusterReads) -> Findings:
    try:
        chosen = await stored(cluster)
    except ConfigurationError as error:
        yield failure(f"{_WHERE}: {error}", "operator and webhooks do not start with it: correct the field")
        return
    if chosen is None:
        yield ok(f"there is no {_WHERE}: the processes have a file of their own, or none")
        return
    yield ok(f"{_WHERE} is read as Kueue {chosen.version} reads it")
    if chosen.ignored:
        yield warning(f"without effect: {some(chosen.ignored)}", "see docs/kueue-compatibility.md", chosen.ignored)
    for text in chosen.warnings:
        yield warning(text, "see docs/kueue-compatibility.md")


_RBAC: Final = ("rbac.authorization.k8s.io", "v1")
_ROLES: Final = {
    "ClusterRole": Resource(*_RBAC, "clusterroles", namespaced=False, kind="ClusterRole"),
    "Role": Resource(*_RBAC, "roles", kind="Role"),
}
_GRANT: Final = "gangline admin rbac | kubectl apply -f -"
_GRANT_BY_SETTINGS: Final = "gangline admin rbac --config FILE | kubectl apply -f -, with the file of the operator"
#: reviews that are requested at the same time
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class AccessQuestion:
    """A question to the API server whether an account may do something. `namespace` "" = in all namespaces."""

    verb: str
    resource: Resource
    subresource: str = ""
    name: str = ""
    namespace: str = ""

    @property
    def attributes(self) -> Json:
        about = {
            "verb": self.verb,
            "group": self.resource.group,
            "resource": self.resource.plural,
            "subresource": self.subresource,
            "name": self.name,
            "namespace": self.namespace,
        }
        return {key: value for key, value in about.items() if value or key == "group"}

    def __str__(self) -> str:
        below = f"/{self.subresource}" if self.subresource else ""
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {self.resource}{below}{named}" + (f" in {self.namespace}" if self.namespace else "")


def questions(account: ServiceAccount) -> Iterator[AccessQuestion]:
    """One for each verb of each of the account's rights."""
    places = (("", account.everywhere), (names.SYSTEM_NAMESPACE, account.at_home))
    return (question for place, granted in places for right in granted for question in _of(right, place))


def _of(right: Right, namespace: str) -> Iterator[AccessQuestion]:
    for verb in right.verbs:
        for name in right.names or ("",):
            yield AccessQuestion(verb, right.resource, right.subresource, name, namespace)


async def operator(cluster: ClusterReads) -> Findings:
    async for finding in _granted(cluster, rights.OPERATOR, await _for_settings(cluster)):
        yield finding


async def _for_settings(cluster: ClusterReads) -> list[AccessQuestion]:
    """The rights that the operator needs in addition because its configuration says so."""
    try:
        chosen = await stored(cluster)
    except (ConfigurationError, Forbidden):  # another check tells it
        return []
    sending = chosen.multikueue if chosen is not None else None
    return list(_of(rights.PROFILES, sending.namespace)) if sending is not None and sending.profiles else []


async def webhooks(cluster: ClusterReads) -> Findings:
    async for finding in _granted(cluster, rights.WEBHOOKS):
        yield finding


async def _granted(cluster: ClusterReads, account: ServiceAccount, more: Sequence[AccessQuestion] = ()) -> Findings:
    if await cluster.get(SERVICE_ACCOUNTS, names.SYSTEM_NAMESPACE, account.name) is None:
        detail = f"there is no service account {account.name}: the process logs in as somebody else, or does not run"
        yield warning(detail, _GRANT)
        return
    asked = [*questions(account), *more]
    try:
        refused = await _refused(cluster, _user(account), asked)
    except Forbidden:
        async for finding in _roles(cluster, account):
            yield finding
        return
    if refused:
        grant = _GRANT_BY_SETTINGS if any(str(each) in refused for each in more) else _GRANT
        yield failure(f"{account.name} may not: {some(refused)}", grant, refused)
    else:
        yield ok(f"{account.name} has all {len(asked)} rights")


def _user(account: ServiceAccount) -> Json:
    place = f"system:serviceaccounts:{names.SYSTEM_NAMESPACE}"
    user = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{account.name}"
    return {"user": user, "groups": ["system:serviceaccounts", place, "system:authenticated"]}


async def _refused(cluster: ClusterReads, user: Json, asked: Iterable[AccessQuestion]) -> list[str]:
    """The questions to which the API server's authorizer says no for this user; `user` {} = who asks. Raises Forbidden."""
    limit = asyncio.Semaphore(_AT_ONCE)
    resource = REVIEWS if user else SELF_REVIEWS

    async def allowed(question: AccessQuestion) -> bool:
        spec = {**user, "resourceAttributes": question.attributes}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        async with limit:
            answer = await cluster.api.create(resource, None, body, within=PATIENCE)
        return bool((answer.get("status") or {}).get("allowed"))

    listed = list(asked)
    answers = await asyncio.gather(*map(allowed, listed))
    return [str(question) for question, may in zip(listed, answers, strict=True) if not may]


async def _roles(cluster: ClusterReads, account: ServiceAccount) -> Findings:
    """Check that the roles are as `gangline admin rbac` prints them, for users who may not ask for the rights of others."""
    for wanted in rights.manifests():
        if wanted["kind"] not in _ROLES or wanted["metadata"]["name"] != account.name:
            continue
        meta = wanted["metadata"]
        where = f"{wanted['kind']} {meta['name']}"
        try:
            live = await cluster.get(_ROLES[wanted["kind"]], meta.get("namespace"), meta["name"])
        except Forbidden:
            yield unknown(f"you may neither ask for the rights of {account.name} nor read its roles")
            return
        if live is None:
            yield failure(f"there is no {where}", _GRANT)
        elif missing := sorted(_triples(wanted) - _triples(live)):
            yield failure(f"{where} does not grant: {some(missing)}", _GRANT, missing)
        else:
            yield ok(f"{where} grants what this version needs")


def _triples(role: Json) -> set[str]:
    """The rights that the rules of a role grant, one by one."""
    rules = cast("list[dict[str, list[Any]]]", role.get("rules") or ())
    return {
        " ".join((verb, f"{resource}.{group}".rstrip("."), name)).rstrip()
        for rule in rules
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
        for verb in rule.get("verbs") or ()
        for name in rule.get("resourceNames") or ("",)
    }


async def asker(cluster: ClusterReads) -> Findings:
    """Check which rights this user lacks, so that other checks say less."""
    home = names.SYSTEM_NAMESPACE
    asked = (
        AccessQuestion("get", kube.CUSTOM_RESOURCE_DEFINITIONS),
        AccessQuestion("get", kube.MUTATING_WEBHOOKS),
        AccessQuestion("get", kube.LEASES, namespace=home),
        AccessQuestion("get", kube.SECRETS, namespace=home),
        AccessQuestion("list", kube.PODS, namespace=home),
        AccessQuestion("get", kube.PODS, "proxy", namespace=home),
        AccessQuestion("list", kube.WORKLOADS),
        AccessQuestion("list", kube.JOBS),
        AccessQuestion("create", kube.RESOURCE_FLAVORS),
        AccessQuestion("create", REVIEWS),
    )
    refused = await _refused(cluster, {}, asked)
    if refused:
        yield unknown(f"you may not {some(refused)}", "some checks below say less: an administrator sees all of them")
    else:
        yield ok("you may read all that is checked")
