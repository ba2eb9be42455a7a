"""Fields of Kueue's configuration file: what each does in Gangline.

A row for each field, by its path: `[]` stands for the items of a list. A row without `WORKS` holds for all that is below it, too.
"""

from __future__ import annotations

from typing import Final

from gangline.api.compatibility.states import WORKS, Fields, differs, no, works

_EXEC: Final = (
    "apiVersion",
    "args",
    "command",
    "env",
    "env[].name",
    "env[].value",
    "installHint",
    "provideClusterInfo",
)


def _providers(path: str) -> Fields:
    """A list of programs that fetch credentials."""
    no_input = works("checked; the program never gets an input, as in Kueue")
    works_all = [path, f"{path}[].name", f"{path}[].execConfig", *(f"{path}[].execConfig.{name}" for name in _EXEC)]
    return {**dict.fromkeys(works_all, WORKS), f"{path}[].execConfig.interactiveMode": no_input}


SETTINGS: Final[Fields] = {
    "admissionFairSharing": WORKS,
    "admissionFairSharing.resourceWeights": WORKS,
    "admissionFairSharing.usageHalfLifeTime": WORKS,
    "admissionFairSharing.usageSamplingInterval": WORKS,
    "apiVersion": WORKS,
    "clientConnection": no("the operator writes as fast as the API server takes it"),
    "controller": no("one loop does all work: there is nothing to run in parallel"),
    "fairSharing": WORKS,
    "fairSharing.enable": WORKS,
    "fairSharing.preemptionStrategies": WORKS,
    "featureGates": WORKS,
    "health": WORKS,
    "health.healthProbeBindAddress": WORKS,
    "health.livenessEndpointName": differs("always /healthz"),
    "health.readinessEndpointName": differs("always /readyz"),
    "integrations": WORKS,
    "integrations.externalFrameworks": WORKS,
    "integrations.frameworks": differs(
        "JobSets are managed without a list, too; declared kinds and GPUJobs always are"
    ),
    "integrations.labelKeysToCopy": WORKS,
    "integrations.podOptions": no("managedJobsNamespaceSelector selects namespaces of pods, too"),
    "internalCertManagement": WORKS,
    "internalCertManagement.enable": differs("`--mode` of `gangline webhooks` takes its place"),
    "internalCertManagement.webhookSecretName": differs("`--secret` of `gangline webhooks` takes its place"),
    "internalCertManagement.webhookServiceName": differs("`--service` of `gangline webhooks` takes its place"),
    "kind": WORKS,
    "leaderElection": WORKS,
    "leaderElection.leaderElect": WORKS,
    "leaderElection.leaseDuration": WORKS,
    "leaderElection.renewDeadline": WORKS,
    "leaderElection.resourceLock": WORKS,
    "leaderElection.resourceName": WORKS,
    "leaderElection.resourceNamespace": WORKS,
    "leaderElection.retryPeriod": WORKS,
    "manageJobsWithoutQueueName": WORKS,
    "managedJobsNamespaceSelector": WORKS,
    "metadata": WORKS,
    "metrics": WORKS,
    "metrics.bindAddress": WORKS,
    "metrics.customLabels": WORKS,
    "metrics.customLabels[].name": WORKS,
    "metrics.customLabels[].sourceAnnotationKey": WORKS,
    "metrics.customLabels[].sourceKind": WORKS,
    "metrics.customLabels[].sourceLabelKey": WORKS,
    "metrics.customLabels[].trackedValues": WORKS,
    "metrics.enableClusterQueueResources": WORKS,
    "metrics.localQueueMetrics": WORKS,
    "metrics.localQueueMetrics.enable": WORKS,
    "metrics.localQueueMetrics.localQueueSelector": WORKS,
    "multiKueue": WORKS,
    "multiKueue.clusterProfile": WORKS,
    **_providers("multiKueue.clusterProfile.accessProviders"),
    **_providers("multiKueue.clusterProfile.credentialsProviders"),
    "multiKueue.dispatcherName": WORKS,
    "multiKueue.externalFrameworks": WORKS,
    "multiKueue.externalFrameworks[].name": WORKS,
    "multiKueue.gcInterval": WORKS,
    "multiKueue.incrementalDispatcherConfig": WORKS,
    "multiKueue.incrementalDispatcherConfig.stepSize": WORKS,
    "multiKueue.origin": WORKS,
    "multiKueue.workerLostTimeout": WORKS,
    "namespace": WORKS,
    "objectRetentionPolicies": WORKS,
    "objectRetentionPolicies.workloads": WORKS,
    "objectRetentionPolicies.workloads.afterDeactivatedByKueue": WORKS,
    "objectRetentionPolicies.workloads.afterFinished": WORKS,
    "pprofBindAddress": no("there is no such server"),
    "queueVisibility": no("the visibility API took its place, in Kueue, too"),
    "resources": WORKS,
    "resources.deviceClassMappings": WORKS,
    "resources.deviceClassMappings[].deviceClassNames": WORKS,
    "resources.deviceClassMappings[].name": WORKS,
    "resources.deviceClassMappings[].sources": differs("refused: partitionable devices are not counted"),
    "resources.excludeResourcePrefixes": WORKS,
    "resources.quotaCheckStrategy": WORKS,
    "resources.transformations": WORKS,
    "resources.transformations[].input": WORKS,
    "resources.transformations[].multiplyBy": WORKS,
    "resources.transformations[].outputs": WORKS,
    "resources.transformations[].strategy": WORKS,
    "tls": WORKS,
    "tls.cipherSuites": WORKS,
    "tls.curvePreferences": no("the groups are those of OpenSSL"),
    "tls.minVersion": WORKS,
    "visibilityServer": differs("`--visibility-listen` of `gangline operator` takes its place"),
    "waitForPodsReady": WORKS,
    "waitForPodsReady.blockAdmission": WORKS,
    "waitForPodsReady.enable": WORKS,
    "waitForPodsReady.recoveryTimeout": WORKS,
    "waitForPodsReady.requeuingStrategy": WORKS,
    "waitForPodsReady.requeuingStrategy.backoffBaseSeconds": WORKS,
    "waitForPodsReady.requeuingStrategy.backoffLimitCount": WORKS,
    "waitForPodsReady.requeuingStrategy.backoffMaxSeconds": WORKS,
    "waitForPodsReady.requeuingStrategy.timestamp": WORKS,
    "waitForPodsReady.timeout": WORKS,
    "webhook": WORKS,
    "webhook.certDir": differs("`--cert-dir` of `gangline webhooks` takes its place"),
    "webhook.host": differs("`--listen` of `gangline webhooks` takes its place"),
    "webhook.port": differs("`--listen` of `gangline webhooks` takes its place"),
}
