"""The sections of Kueue's configuration file, and of Gangline's own one, in each version of the API.

From Kueue's `apis/config`. A file of v1beta2 may have `enable` in two sections, which only v1beta1 has: earlier versions of
Gangline took it there.
"""

from __future__ import annotations

from typing import Final

from gangline.api.read.configuration import declared_kinds
from gangline.api.read.configuration.shapes import (
    ANY,
    DURATION,
    FLAG,
    NUMBER,
    SELECTOR,
    TEXT,
    WHOLE,
    Map,
    Shape,
)

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
