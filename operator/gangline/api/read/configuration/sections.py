"""The sections of Kueue's configuration file, and of Gangline's own one, in each version of the API.

From Kueue's `apis/config`. A file of v1beta2 may have `enable` in two sections, which only v1beta1 has: earlier versions of
Gangline took it there.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final

from gangline.api.read.configuration import declared_kinds
from gangline.api.read.configuration.fields import ConfigurationError, choice, duration, mapping, rows
from gangline.api.read.configuration.gates import Gates
from gangline.api.read.configuration.shapes import ANY, DURATION, FLAG, NUMBER, SELECTOR, TEXT, WHOLE, Map, Shape
from gangline.kube.resources import Json
from gangline.tls.connections import USUAL, Handshakes

_EXEC: Final[Shape] = {
    "command": TEXT,
    "args": [TEXT],
    "env": [{"name": TEXT, "value": TEXT}],
    "apiVersion": TEXT,
    "installHint": TEXT,
    "provideClusterInfo": FLAG,
    "interactiveMode": TEXT,
}
_PROVIDERS: Final[Shape] = [{"name": TEXT, "execConfig": _EXEC}]
_SOURCE: Final[Shape] = {"name": TEXT, "driver": TEXT, "deviceSelector": {"cel": {"expression": TEXT}}}
_OURS: Final[Shape] = {
    "kueueCompatibility": ANY,
    "nodeHealth": {"conditions": Map(TEXT), "grace": Map(ANY)},
}
_BOTH: Final[dict[str, Shape]] = {
    "apiVersion": TEXT,
    "kind": TEXT,
    "metadata": Map(ANY),
    "namespace": TEXT,
    "webhook": {"port": WHOLE, "host": TEXT, "certDir": TEXT},
    "leaderElection": {
        "leaderElect": FLAG,
        "leaseDuration": DURATION,
        "renewDeadline": DURATION,
        "retryPeriod": DURATION,
        "resourceLock": TEXT,
        "resourceName": TEXT,
        "resourceNamespace": TEXT,
    },
    "metrics": {
        "bindAddress": TEXT,
        "enableClusterQueueResources": FLAG,
        "customLabels": [
            {
                "name": TEXT,
                "sourceLabelKey": TEXT,
                "sourceAnnotationKey": TEXT,
                "sourceKind": TEXT,
                "trackedValues": [TEXT],
            }
        ],
        "localQueueMetrics": {"enable": FLAG, "localQueueSelector": SELECTOR},
    },
    "health": {"healthProbeBindAddress": TEXT, "readinessEndpointName": TEXT, "livenessEndpointName": TEXT},
    "pprofBindAddress": TEXT,
    "controller": {"groupKindConcurrency": Map(WHOLE), "cacheSyncTimeout": WHOLE},
    "tls": {"minVersion": TEXT, "cipherSuites": [TEXT], "curvePreferences": [WHOLE]},
    "manageJobsWithoutQueueName": FLAG,
    "managedJobsNamespaceSelector": SELECTOR,
    "internalCertManagement": {"enable": FLAG, "webhookServiceName": TEXT, "webhookSecretName": TEXT},
    "waitForPodsReady": {
        "enable": FLAG,
        "timeout": DURATION,
        "unscheduledTimeout": DURATION,
        "recoveryTimeout": DURATION,
        "blockAdmission": FLAG,
        "requeuingStrategy": {
            "timestamp": TEXT,
            "backoffLimitCount": WHOLE,
            "backoffBaseSeconds": WHOLE,
            "backoffMaxSeconds": WHOLE,
        },
    },
    "clientConnection": {"qps": NUMBER, "burst": WHOLE},
    "integrations": {
        "frameworks": [TEXT],
        "externalFrameworks": [TEXT],
        "labelKeysToCopy": [TEXT],
        "declared": declared_kinds.SHAPE,
    },
    "multiKueue": {
        "gcInterval": DURATION,
        "origin": TEXT,
        "workerLostTimeout": DURATION,
        "dispatcherName": TEXT,
        "externalFrameworks": [{"name": TEXT}],
        "clusterProfile": {"accessProviders": _PROVIDERS, "credentialsProviders": _PROVIDERS},
        "incrementalDispatcherConfig": {"stepSize": WHOLE},
    },
    "fairSharing": {"enable": FLAG, "preemptionStrategies": [TEXT]},
    "admissionFairSharing": {
        "usageHalfLifeTime": DURATION,
        "usageSamplingInterval": DURATION,
        "resourceWeights": Map(NUMBER),
    },
    "resources": {
        "quotaCheckStrategy": TEXT,
        "excludeResourcePrefixes": [TEXT],
        "transformations": [{"input": TEXT, "strategy": TEXT, "multiplyBy": TEXT, "outputs": Map(ANY)}],
        "deviceClassMappings": [
            {"name": TEXT, "deviceClassNames": [TEXT], "sources": [{"counter": _SOURCE, "capacity": _SOURCE}]}
        ],
    },
    "featureGates": Map(ANY),
    "objectRetentionPolicies": {"workloads": {"afterFinished": DURATION, "afterDeactivatedByKueue": DURATION}},
    "gangline": _OURS,
}
_OLD_INTEGRATIONS: Final[dict[str, Shape]] = {
    "frameworks": [TEXT],
    "externalFrameworks": [TEXT],
    "labelKeysToCopy": [TEXT],
    "declared": declared_kinds.SHAPE,
    "podOptions": {"namespaceSelector": SELECTOR, "podSelector": SELECTOR},
}

V1BETA2: Final[Shape] = {**_BOTH, "visibilityServer": {"bindAddress": TEXT, "bindPort": WHOLE}}
V1BETA1: Final[Shape] = {
    **_BOTH,
    "integrations": _OLD_INTEGRATIONS,
    "queueVisibility": {"clusterQueues": {"maxCount": WHOLE}, "updateIntervalSeconds": WHOLE},
    # Kueue reads this one in v1beta2 only
    "visibilityServer": {"bindAddress": TEXT, "bindPort": WHOLE},
}

#: fields that Gangline knows and that have no effect, by their paths; those of other sections are found by the section's reader
WITHOUT_EFFECT: Final = (
    "clientConnection",
    "controller",
    "integrations.podOptions",
    "pprofBindAddress",
    "queueVisibility",
    "visibilityServer",
)

#: fields that have no effect, and need none while they are Kueue's default: flags of the commands take their place
ONLY_AS_USUAL: Final = {
    "webhook.port": 9443,
    "webhook.host": "",
    "webhook.certDir": "/tmp/k8s-webhook-server/serving-certs",
    "internalCertManagement.enable": True,
    "internalCertManagement.webhookServiceName": "kueue-webhook-service",
    "internalCertManagement.webhookSecretName": "kueue-webhook-server-cert",
}


# --- tls settings -----------------------------------------------------------------------------------------------------
#
# Fields of Kueue's configuration file about its servers' TLS: `tls`. Kueue's gate `TLSOptions` turns them on.


GATE: Final = "TLSOptions"
_OLDEST, _NEWEST = "VersionTLS12", "VersionTLS13"
#: ciphers of TLS 1.2: Go's name -> OpenSSL's
CIPHERS: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
}
#: ciphers of TLS 1.3: as in Go they may be named, and are accepted whether they are or not
ALWAYS: Final = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")


def load_tls(section: Json, gates: Gates) -> tuple[Handshakes, list[str]]:
    """What servers accept, and the fields that are set and have no effect. Raises ConfigurationError."""
    version = choice(section, "tls.minVersion", _OLDEST, _NEWEST)
    named = rows(section.get("cipherSuites"), "tls.cipherSuites", len(CIPHERS) + len(ALWAYS))
    for i, name in enumerate(named):
        if name not in CIPHERS and name not in ALWAYS:
            raise ConfigurationError(
                f"tls.cipherSuites[{i}]: {str(name)[:80]!r} is none of {', '.join(sorted(CIPHERS))}"
            )
    if named and version == _NEWEST:
        raise ConfigurationError("tls.cipherSuites: may not be specified when `minVersion` is 'VersionTLS13'")
    if not gates.on(GATE):
        return USUAL, ["tls"] if section else []
    ciphers = tuple(dict.fromkeys(CIPHERS[name] for name in named if name in CIPHERS)) if named else None
    least = ssl.TLSVersion.TLSv1_3 if version == _NEWEST else ssl.TLSVersion.TLSv1_2
    # Python cannot choose several groups for the exchange of keys
    return Handshakes(least, ciphers), ["tls.curvePreferences"] if section.get("curvePreferences") else []


# --- retention --------------------------------------------------------------------------------------------------------
#
# `objectRetentionPolicies` of Kueue's configuration file: when finished and deactivated Workloads are deleted.


SECTION: Final = "objectRetentionPolicies"


@dataclass(frozen=True, slots=True)
class Retention:
    """The times in seconds after which Workloads and jobs that have ended are deleted; None: they are not deleted."""

    #: from the end of a Workload to its deletion
    after_finished: float | None = None
    #: from the eviction of a Workload that was deactivated (not by its user) to the deletion of its job
    after_deactivated: float | None = None


#: what holds without the section
FOR_EVER: Final = Retention()


def load_retention(root: Json) -> Retention:
    """Read for how long ended Workloads are kept. Raises ConfigurationError."""
    section = mapping(root.get(SECTION), SECTION)
    path = f"{SECTION}.workloads"
    workloads = mapping(section.get("workloads"), path)
    return Retention(
        *(
            duration(workloads, f"{path}.{name}", "") if workloads.get(name) is not None else None
            for name in ("afterFinished", "afterDeactivatedByKueue")
        )
    )
