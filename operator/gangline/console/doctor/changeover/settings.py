"""Kueue's configuration, read as `gangline admin operator --config` reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from gangline.api.read.configuration import Configuration, ConfigurationError, gates, load, parse, versions
from gangline.console.doctor import kueue_names
from gangline.console.doctor.changeover import controller
from gangline.console.doctor.cluster import ClusterReads, Finding, failure, ok, some, unknown, warning
from gangline.console.doctor.examination import Findings
from gangline.console.doctor.installation.kueue_leftovers import controllers
from gangline.kube import resources as kube
from gangline.kube.resources import Json


@dataclass(frozen=True, slots=True)
class Consequence:
    """The consequence for users of a field that has no effect."""

    blocks: bool
    detail: str
    advice: str


_GATES: Final = "featureGates."
#: the value of a gate -> what Gangline does where that is the same; where it is the opposite
_AS_IT_IS: Final = {True: (gates.ON, gates.NEITHER), False: (gates.OFF, gates.NEITHER)}
_UNHEEDED: Final = {True: gates.OFF, False: gates.ON}

#: fields that Gangline ignores, and what they did
CONSEQUENCES: Final = {
    "integrations.podOptions": Consequence(
        False, "namespaces of pods are selected by managedJobsNamespaceSelector alone", "write them there"
    ),
    "metrics": Consequence(False, "these labels are not there", "see docs/reference/metrics.md"),
    "health": Consequence(False, "the paths are /readyz and /healthz", "change the probes that ask there"),
    "tls": Consequence(False, "versions and ciphers of TLS are those of Python", ""),
    "visibilityServer": Consequence(False, "the visibility API is served at --visibility-listen", ""),
}


async def _stored(cluster: ClusterReads) -> tuple[str, Json] | None:
    """The place of Kueue's configuration, as text, and its ConfigMap; None where there is none."""
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


async def readable(cluster: ClusterReads) -> Configuration | None:
    """Kueue's configuration as Gangline reads it; None where it does not, which the check of the configuration tells."""
    stored = await _stored(cluster)
    text = ((stored[1].get("data") or {}) if stored else {}).get(kueue_names.CONFIGURATION_KEY) or ""
    try:
        return load(parse(text) or {})
    except ConfigurationError:
        return None


async def external_kinds(cluster: ClusterReads) -> frozenset[tuple[str, str]]:
    """Group and kind of the controllers that bring Workloads of their own, as Kueue's configuration lists them."""
    chosen = await readable(cluster)
    return frozenset((each.group, each.kind) for each in chosen.jobs.external) if chosen is not None else frozenset()


async def configuration(cluster: ClusterReads) -> Findings:
    stored = await _stored(cluster)
    text = ((stored[1].get("data") or {}) if stored else {}).get(kueue_names.CONFIGURATION_KEY)
    if stored is None or text is None:
        yield unknown(
            "Kueue's configuration was not found", "give the operator its file: gangline admin operator --config FILE"
        )
        return
    where, running = stored[0], await controller.version(cluster)
    as_is = versions.closest(*running) if running is not None else versions.NEWEST
    try:
        body = parse(text)
        chosen = load(body, default_version=as_is)
    except ConfigurationError as error:
        yield failure(f"{where}: {error}", "the operator does not start with this file: correct the field")
        return
    yield ok(f"{where} is read as it is: save it, and start gangline admin operator --config FILE")
    if _means_something_else(body, chosen):
        advice = f'write `gangline: {{kueueCompatibility: "{as_is}"}}` into the file to keep what holds without a word'
        yield warning(f"this Kueue is {as_is}, and Gangline reads files as {versions.NEWEST}: defaults differ", advice)
    for field in chosen.ignored:
        yield _ignored(field)
    for text in chosen.warnings:
        if not text.startswith(_GATES):
            yield warning(text, "")


def _means_something_else(body: Any, chosen: Configuration) -> bool:
    """Whether the file means something else, or is refused, if it does not name the version of Kueue."""
    try:
        usual = load(body)
    except ConfigurationError:
        return True
    words = "UnadmittedWorkloadsObservability"
    return (usual.settings, usual.jobs) != (chosen.settings, chosen.jobs) or usual.gates.on(words) != chosen.gates.on(
        words
    )


def _ignored(field: str) -> Finding:
    known = CONSEQUENCES.get(field) or CONSEQUENCES.get(field.partition(".")[0])
    if known is None:
        return ok(f"{field} has no effect, and needs none")
    say = failure if known.blocks else warning
    return say(f"{field} has no effect: {known.detail}", known.advice, [field])


async def feature_gates(cluster: ClusterReads) -> Findings:
    stored = await _stored(cluster)
    text = ((stored[1].get("data") or {}) if stored else {}).get(kueue_names.CONFIGURATION_KEY) or ""
    try:
        body = parse(text)
    except ConfigurationError:  # the check above tells it
        body = None
    section = cast(Json, body).get("featureGates") if isinstance(body, dict) else None
    written = cast(Json, section if isinstance(section, dict) else {})
    given = {str(name): value for name, value in written.items() if isinstance(value, bool)}
    passed = [part for row in await controllers(cluster) for part in _passed(controller.arguments(row))]
    if known := sorted(name for name in given if gates.does(name) == gates.READ):
        yield ok(f"{some(known)}: in force")
    if same := sorted(name for name in given if gates.does(name) in _AS_IT_IS.get(given[name], ())):
        yield ok(f"{some(same)}: as Gangline does")
    for name in sorted(name for name in given if gates.does(name) == _UNHEEDED.get(given[name])):
        set_to = f"{name}={str(given[name]).lower()}"
        yield warning(f"{set_to}: without effect", "see docs/kueue-compatibility.md", [set_to])
    if passed:
        advice = "write them into the file, under featureGates: Gangline reads no --feature-gates"
        yield warning(f"set by --feature-gates: {some(passed)}", advice, passed)
    if not given and not passed:
        yield ok("none is set")


def _passed(arguments: list[str]) -> list[str]:
    values = [text.partition("=")[2] for text in arguments if text.startswith("--feature-gates=")]
    return [part.strip() for value in values for part in value.split(",") if part.strip()]
