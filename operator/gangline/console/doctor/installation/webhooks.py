"""The webhook configurations, and the certificates behind them."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final

from cryptography import x509

from gangline import bounded
from gangline.api import names
from gangline.api.schema.kinds import CONVERTED
from gangline.console.doctor.cluster import PATIENCE, ClusterReads, Finding, failure, ok, some, unknown, warning
from gangline.console.doctor.examination import Findings
from gangline.console.doctor.installation import endpoints
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Forbidden
from gangline.kube.resources import Json, Resource
from gangline.tls.certificates import is_signed_by
from gangline_webhooks import registration
from gangline_webhooks.certificate_store import SECRET
from gangline_webhooks.registrar import contains
from gangline_webhooks.registration import Endpoint

START: Final = "start `gangline admin webhooks` of this version: they register themselves"
#: days of a certificate below which its renewal is late: they renew after two thirds of a life of a year or more
SOON: Final = 30


async def registered(cluster: ClusterReads) -> Findings:
    healthy = True
    for resource, wanted in registration.configurations(Endpoint(), None).items():
        live = await cluster.get(resource, None, registration.NAME)
        if live is None:
            healthy = False
            yield failure(
                f"there is no {resource.kind} {registration.NAME}: objects are neither completed nor checked", START
            )
            continue
        for finding in _compared(resource, wanted, live):
            healthy = False
            yield finding
        for client in _clients(live):
            trouble = await endpoints.trouble(cluster, client)
            if trouble:
                healthy = False
                yield failure(f"{resource.kind} leads to {endpoints.name_of(client)}: {trouble}", START)
    if healthy:
        yield ok("as this version registers them")


def _compared(resource: Resource, wanted: Json, live: Json) -> Iterator[Finding]:
    found = {row["name"]: row for row in live.get("webhooks") or ()}
    expected = {row["name"]: {k: v for k, v in row.items() if k != "clientConfig"} for row in wanted["webhooks"]}
    if absent := sorted(expected.keys() - found.keys()):
        yield failure(f"{resource.kind} lacks {some(absent)}", START, absent)
    lax = [name for name in expected.keys() & found.keys() if _laxer(expected[name], found[name])]
    if lax:
        yield warning(
            f"{some(lax)}: failurePolicy is not Fail, so jobs pass unseen while the webhooks are down", START, lax
        )
    stricter = {"failurePolicy": "Fail", "timeoutSeconds": registration.PATIENT}  # with manageJobsWithoutQueueName
    other = [
        n
        for n in expected.keys() & found.keys()
        if n not in lax and not any(contains(found[n], each) for each in (expected[n], {**expected[n], **stricter}))
    ]
    if other:
        yield warning(f"{some(other)}: rules of another version of Gangline", START, other)


def _laxer(wanted: Json, live: Json) -> bool:
    return wanted["failurePolicy"] == "Fail" and live.get("failurePolicy") != "Fail"


def _clients(configuration: Json) -> list[Json]:
    """The different places to which one configuration leads."""
    found = {endpoints.name_of(row["clientConfig"]): row["clientConfig"] for row in configuration.get("webhooks") or ()}
    return list(found.values())


# --- certificates -----------------------------------------------------------------------------------------------------


async def certificates(cluster: ClusterReads) -> Findings:
    """Check of every registered CA bundle, and of the serving certificate where its Secret may be read."""
    now, _ = await cluster.server_clock()
    bundles = await _bundles(cluster)
    if not bundles:
        yield unknown("no webhook is registered with a CA bundle")
        return
    authorities: dict[str, list[x509.Certificate]] = {}
    for where, text in bundles.items():
        try:
            authorities[where] = x509.load_pem_x509_certificates(_decoded(text))
        except ValueError:
            yield failure(f"the CA bundle of {where} holds no certificate", START)
    if authorities:
        until = min(max(ca.not_valid_after_utc for ca in chain) for chain in authorities.values())
        yield _lasting("the CA", until, now)
    serving = await _serving(cluster)
    if isinstance(serving, Finding):
        yield serving
        return
    yield _lasting("the serving certificate", serving.not_valid_after_utc, now)
    strangers = [where for where, chain in authorities.items() if not any(is_signed_by(serving, ca) for ca in chain)]
    if strangers:
        detail = f"API servers do not trust the serving certificate: the CA bundle of {some(strangers)} did not sign it"
        yield failure(detail, "restart the webhooks: they register their CA again", strangers)


async def _bundles(cluster: ClusterReads) -> dict[str, str]:
    """The CA bundles that are registered, in base64, by the webhook or kind that has them."""
    found: dict[str, str] = {}
    for resource in (kube.MUTATING_WEBHOOKS, kube.VALIDATING_WEBHOOKS):
        live = await cluster.get(resource, None, registration.NAME)
        for row in (live or {}).get("webhooks") or ():
            found[row["name"]] = row["clientConfig"].get("caBundle") or ""
    for kind in CONVERTED:
        live = await cluster.get(kube.CUSTOM_RESOURCE_DEFINITIONS, None, kind.name)
        webhook = ((live or {}).get("spec", {}).get("conversion") or {}).get("webhook")
        if webhook:
            found[kind.name] = (webhook.get("clientConfig") or {}).get("caBundle") or ""
    return found


async def _serving(cluster: ClusterReads) -> x509.Certificate | Finding:
    where = f"Secret {names.SYSTEM_NAMESPACE}/{SECRET}"
    try:
        secret = await cluster.get(kube.SECRETS, names.SYSTEM_NAMESPACE, SECRET)
    except Forbidden:
        return unknown(f"you may not read {where}: the serving certificate is not compared")
    if secret is None:
        return unknown(f"there is no {where}: with cert-manager, look at the Certificate")
    try:
        return x509.load_pem_x509_certificate(_decoded((secret.get("data") or {})["tls.crt"]))
    except (KeyError, ValueError):
        return failure(f"{where} holds no certificate", "delete it and restart the webhooks")


@bounded.parser(65_536, worst=("LS0t", "=", "-"))
def _decoded(text: str) -> bytes:
    """The bytes behind base64. Raises ValueError."""
    return base64.b64decode(text, validate=True)


def _lasting(what: str, until: datetime, now: int) -> Finding:
    days = (until.timestamp() - now / 1000) / 86_400
    if days <= 0:
        return failure(f"{what} expired on {until:%Y-%m-%d}", "restart the webhooks: they renew it")
    if days < SOON:
        return warning(f"{what} expires in {days:.0f} days and was not renewed", "look at the log of the webhooks")
    return ok(f"{what} lasts {days:.0f} more days")


# --- dry runs ---------------------------------------------------------------------------------------------------------
#
# Checks that the webhooks answer: the API server is asked to create harmless objects without storing them (dry run).
#
# An object that has to be completed comes back completed, one that has to be refused is refused, and by the right webhook:
# that covers registration, network, certificates and the processes themselves. Webhooks of others that are in the way show
# here too.


_DRY: Final[Mapping[str, str]] = MappingProxyType({"dryRun": "All"})
_ADVICE: Final = "start `gangline admin webhooks`; if they run, make sure that API servers reach them"


async def answers(cluster: ClusterReads) -> Findings:
    name = f"gangline-doctor-{uuid.uuid4().hex[:8]}"
    namespace = cluster.api.login.namespace
    if namespace in names.EXCLUDED_NAMESPACES:
        namespace = "default"
    yield await _completed(cluster, name)
    yield await _refused(cluster, name, namespace)


async def _completed(cluster: ClusterReads, name: str) -> Finding:
    """Check that a ResourceFlavor gets a finalizer."""
    resource = kube.RESOURCE_FLAVORS
    try:
        made = await _create(cluster, resource, None, {"metadata": {"name": name}, "spec": {}})
    except ApiError as error:
        return _failed("ResourceFlavor", error)
    if names.IN_USE_FINALIZER in (made["metadata"].get("finalizers") or ()):
        return ok("a ResourceFlavor was completed")
    return failure("a ResourceFlavor was not completed: no webhook saw it", _ADVICE)


async def _refused(cluster: ClusterReads, name: str, namespace: str) -> Finding:
    """Check that a Job that names a queue is refused if it may run with no pods, and accepted otherwise.

    The API server asks all webhooks at the same time, and answers with the first refusal: the Job that can never run may be
    refused by ours before another webhook, which nobody answers for, fails. A Job that is right shows that one.
    """
    try:
        await _create(cluster, kube.JOBS, namespace, _job(name, {names.MIN_PARALLELISM: "0"}))
        return failure("a Job that can never run was accepted: no webhook saw it", _ADVICE)
    except ApiError as error:
        if "queued-jobs.validating.gangline.io" not in error.message or "denied the request" not in error.message:
            return _failed("Job that names a queue", error)
    try:
        await _create(cluster, kube.JOBS, namespace, _job(name, {}))
    except ApiError as error:
        if _is_unanswered(error):
            return _failed("Job that names a queue", error)
    return ok(f"a Job in a queue was checked (namespace {namespace})")


def _job(name: str, annotations: Mapping[str, str]) -> Json:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "gangline.io/doctor"}]}}
    meta = {"name": name, "labels": {names.QUEUE_NAME: name}, "annotations": dict(annotations)}
    return {"metadata": meta, "spec": {"parallelism": 1, "suspend": True, "template": template}}


async def _create(cluster: ClusterReads, resource: Resource, namespace: str | None, body: Json) -> Json:
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    return await cluster.api.create(resource, namespace, whole, query=_DRY, within=PATIENCE)


def _failed(what: str, error: ApiError) -> Finding:
    if isinstance(error, Forbidden) and "is forbidden: User " in error.message:
        return unknown(f"you may not create a {what}, so no webhook was tried", "ask an administrator")
    if _is_unanswered(error):
        return failure(
            f"a {what} cannot be created: {error.message}", "start that webhook, or remove its configuration"
        )
    return unknown(f"a {what} was refused for another reason: {error.message}")


def _is_unanswered(error: ApiError) -> bool:
    """Whether nobody answers for a webhook that the API server has to ask."""
    return "failed calling webhook" in error.message or "failed to call webhook" in error.message
