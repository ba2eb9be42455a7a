"""Kueue's configuration, read as `gangline operator --config` reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

import yaml

from gangline.api.read.configuration import GATES, ConfigurationError, load
from gangline.console.doctor import kueue_names
from gangline.console.doctor.changeover import controller
from gangline.console.doctor.cluster import Cluster
from gangline.console.doctor.examination import Findings
from gangline.console.doctor.finding import Finding, failure, ok, some, unknown, warning
from gangline.console.doctor.installation.kueue_leftovers import controllers
from gangline.kube import resources as kube
from gangline.kube.resources import Json

#: Kueue's waitForPodsReady is on without its section from this version on; in Gangline it always is
READY_BY_DEFAULT: Final = (0, 19)
#: characters of the file
_LONGEST: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class Consequence:
    """What it means that a field has no effect."""

    blocks: bool
    detail: str
    advice: str


#: fields that Gangline ignores, and what they did
CONSEQUENCES: Final = {
    "manageJobsWithoutQueueName": Consequence(
        True,
        "jobs that name no queue start without quota",
        "create a LocalQueue `default` in each namespace: it is set then",
    ),
    "managedJobsNamespaceSelector": Consequence(
        False,
        "jobs of all namespaces are managed, but for kube-system and gangline-system",
        "do not name queues elsewhere",
    ),
    "integrations": Consequence(False, "see `job kinds` below; labelKeysToCopy is in force", ""),
    "multiKueue": Consequence(False, "nothing is sent to other clusters", "see `AdmissionChecks` below"),
    "objectRetentionPolicies": Consequence(
        False, "finished Workloads stay until their job is deleted", "let jobs have a TTL"
    ),
    "resources.transformations": Consequence(
        True, "quota counts the resources as pods request them", "write quotas for these resources, or keep Kueue"
    ),
    "resources.excludeResourcePrefixes": Consequence(
        True,
        "the excluded resources count, and workloads that request them wait for quota",
        "give these resources quota",
    ),
    "resources.deviceClassMappings": Consequence(
        True, "devices of ResourceClaims have no quota", "request extended resources"
    ),
    "metrics": Consequence(False, "these labels are not there", "see docs/reference/metrics.md"),
    "health": Consequence(False, "the paths are /readyz and /healthz", "change the probes that ask there"),
    "tls": Consequence(False, "versions and ciphers of TLS are those of Python", ""),
    "visibilityServer": Consequence(False, "the visibility API is served at --visibility-listen", ""),
}


def read(text: str) -> Any:
    """The document in the ConfigMap. Raises ConfigurationError."""
    if len(text) > _LONGEST:
        raise ConfigurationError(f"it is longer than {_LONGEST} characters")
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigurationError(f"it cannot be read: {error}") from error


async def _stored(cluster: Cluster) -> tuple[str, Json] | None:
    """Where Kueue's configuration is, and the ConfigMap."""
    for deployment in await controllers(cluster):
        namespace = deployment["metadata"]["namespace"]
        volumes = deployment["spec"]["template"]["spec"].get("volumes") or ()
        mounted = [name for volume in volumes if (name := (volume.get("configMap") or {}).get("name"))]
        for name in (*mounted, kueue_names.CONFIGURATION):
            found = await cluster.get(kube.CONFIG_MAPS, namespace, name)
            if found is not None and kueue_names.CONFIGURATION_KEY in (found.get("data") or {}):
                return f"ConfigMap {namespace}/{name}", found
    found = await cluster.get(kube.CONFIG_MAPS, kueue_names.NAMESPACE, kueue_names.CONFIGURATION)
    return (f"ConfigMap {kueue_names.NAMESPACE}/{kueue_names.CONFIGURATION}", found) if found is not None else None


async def configuration(cluster: Cluster) -> Findings:
    stored = await _stored(cluster)
    text = ((stored[1].get("data") or {}) if stored else {}).get(kueue_names.CONFIGURATION_KEY)
    if stored is None or text is None:
        yield unknown(
            "Kueue's configuration was not found", "give the operator its file: gangline operator --config FILE"
        )
        return
    where = stored[0]
    try:
        body = read(text)
        chosen = load(body)
    except ConfigurationError as error:
        yield failure(f"{where}: {error}", "the operator does not start with this file: correct the field")
        return
    yield ok(f"{where} is read as it is: save it, and start gangline operator --config FILE")
    root = cast(Json, body if isinstance(body, dict) else {})
    for field in chosen.ignored:
        finding = _ignored(field, root)
        if finding is not None:
            yield finding
    for finding in _defaults(root, await controller.version(cluster)):
        yield finding


def _ignored(field: str, root: Json) -> Finding | None:
    if field == "manageJobsWithoutQueueName" and not root.get(field):
        return None
    known = CONSEQUENCES.get(field) or CONSEQUENCES.get(field.partition(".")[0])
    if known is None:
        return ok(f"{field} has no effect, and needs none")
    say = failure if known.blocks else warning
    return say(f"{field} has no effect: {known.detail}", known.advice, [field])


def _defaults(root: Json, version: tuple[int, int] | None) -> list[Finding]:
    """Sections whose absence means something else here."""
    found: list[Finding] = []
    old = str(root.get("apiVersion", "")).endswith("/v1beta1")
    ready, fair = root.get("waitForPodsReady"), root.get("fairSharing")
    off = "write `waitForPodsReady: {enable: false}` into the file to leave it off"
    if ready is None and (old or (version is not None and version < READY_BY_DEFAULT)):
        found.append(warning("waitForPodsReady is off in this Kueue, and on in Gangline (30m)", off))
    elif old and isinstance(ready, dict) and cast(Json, ready).get("enable") is None:
        found.append(warning("waitForPodsReady without `enable` is off in Kueue's v1beta1, and on in Gangline", off))
    if old and isinstance(fair, dict) and cast(Json, fair).get("enable") is None:
        advice = "write `enable: false`, or delete the section"
        found.append(warning("fairSharing without `enable` is off in Kueue's v1beta1, and on in Gangline", advice))
    return found


async def feature_gates(cluster: Cluster) -> Findings:
    stored = await _stored(cluster)
    text = ((stored[1].get("data") or {}) if stored else {}).get(kueue_names.CONFIGURATION_KEY) or ""
    try:
        body = read(text)
    except ConfigurationError:  # the check above tells it
        body = None
    section = cast(Json, body).get("featureGates") if isinstance(body, dict) else None
    gates = {str(name): value for name, value in cast(Json, section if isinstance(section, dict) else {}).items()}
    passed = [part for row in await controllers(cluster) for part in _passed(controller.arguments(row))]
    if known := sorted(name for name in gates if name in GATES):
        yield ok(f"{some(known)}: in force")
    if other := sorted(f"{name}={str(value).lower()}" for name, value in gates.items() if name not in GATES):
        yield warning(f"{some(other)}: without effect", "see docs/cli.md for what Gangline has in their place", other)
    if passed:
        advice = "write them into the file, under featureGates: Gangline reads no --feature-gates"
        yield warning(f"set by --feature-gates: {some(passed)}", advice, passed)
    if not gates and not passed:
        yield ok("none is set")


def _passed(arguments: list[str]) -> list[str]:
    values = [text.partition("=")[2] for text in arguments if text.startswith("--feature-gates=")]
    return [part.strip() for value in values for part in value.split(",") if part.strip()]
