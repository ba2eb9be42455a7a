"""Fields of Kueue's configuration file, and what those do in Gangline that need a word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from scripts.reference.compatibility.fields import Rows, differs, no, works

from gangline.api.read.configuration import sections
from gangline.api.read.configuration.shapes import Shape

_NO_INPUT: Final = works("checked; the program never gets an input, as in Kueue")
#: fields of the file that are Gangline's own
_OURS: Final = ("gangline", "integrations.declared")

#: The fields that need a word. Every other one works as in Kueue.
SETTINGS: Final[Rows] = {
    "clientConnection": no("the operator writes as fast as the API server takes it"),
    "controller": no("one loop does all work: there is nothing to run in parallel"),
    "health.livenessEndpointName": differs("always /healthz"),
    "health.readinessEndpointName": differs("always /readyz"),
    "integrations.frameworks": differs(
        "JobSets are managed without a list, too; declared kinds and GPUJobs always are"
    ),
    "integrations.podOptions": no("managedJobsNamespaceSelector selects namespaces of pods, too"),
    "internalCertManagement.enable": differs("`--mode` of `gangline admin webhooks` takes its place"),
    "internalCertManagement.webhookSecretName": differs("`--secret` of `gangline admin webhooks` takes its place"),
    "internalCertManagement.webhookServiceName": differs("`--service` of `gangline admin webhooks` takes its place"),
    "multiKueue.clusterProfile.accessProviders[].execConfig.interactiveMode": _NO_INPUT,
    "multiKueue.clusterProfile.credentialsProviders[].execConfig.interactiveMode": _NO_INPUT,
    "pprofBindAddress": no("there is no such server"),
    "queueVisibility": no("the visibility API took its place, in Kueue, too"),
    "tls.curvePreferences": no("the groups are those of OpenSSL"),
    "visibilityServer": differs("`--visibility-listen` of `gangline admin operator` takes its place"),
    "webhook.certDir": differs("`--cert-dir` of `gangline admin webhooks` takes its place"),
    "webhook.host": differs("`--listen` of `gangline admin webhooks` takes its place"),
    "webhook.port": differs("`--listen` of `gangline admin webhooks` takes its place"),
}


def fields_of_file() -> set[str]:
    """The paths of all fields that Kueue's configuration file may have, in both versions."""
    found = {*settings_of(sections.V1BETA1), *settings_of(sections.V1BETA2)}
    return {path for path in found if not path.startswith(_OURS)}


def settings_of(shape: Shape, path: str = "") -> Iterator[str]:
    """The paths of the fields of a shape. A `Map` has names of the user's own, so it has none."""
    if isinstance(shape, list):
        yield from settings_of(shape[0], f"{path}[]")
    elif isinstance(shape, Mapping):
        for name, inner in shape.items():
            whole = f"{path}.{name}" if path else name
            yield whole
            yield from settings_of(inner, whole)
