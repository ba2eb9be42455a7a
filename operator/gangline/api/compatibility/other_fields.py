"""Fields of all other kinds of Kueue: what each does in Gangline.

A row for each field of the CRD, by its path: `[]` stands for the items of a list. Where v1beta1 has it under the same path, too,
the row holds for both versions. The conditions' own fields have no rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangline.api.compatibility.states import WORKS, Fields, differs, works

OTHERS: Final[Mapping[str, Fields]] = {
    "AdmissionCheck": {
        "spec": WORKS,
        "spec.controllerName": WORKS,
        "spec.parameters": WORKS,
        "spec.parameters.apiGroup": WORKS,
        "spec.parameters.kind": WORKS,
        "spec.parameters.name": WORKS,
        "status": WORKS,
        "status.conditions": WORKS,
        # v1beta1 only
        "spec.retryDelayMinutes": works("kept; it decides nothing, as in Kueue"),
    },
    "MultiKueueCluster": {
        "spec": WORKS,
        "spec.clusterSource": WORKS,
        "spec.clusterSource.clusterProfileRef": WORKS,
        "spec.clusterSource.clusterProfileRef.name": WORKS,
        "spec.clusterSource.kubeConfig": WORKS,
        "spec.clusterSource.kubeConfig.location": WORKS,
        "spec.clusterSource.kubeConfig.locationType": WORKS,
        "status": WORKS,
        "status.conditions": WORKS,
        # v1beta1 only
        "spec.clusterProfileRef": WORKS,
        "spec.clusterProfileRef.name": WORKS,
        "spec.kubeConfig": WORKS,
        "spec.kubeConfig.location": WORKS,
        "spec.kubeConfig.locationType": WORKS,
    },
    "MultiKueueConfig": {
        "spec": WORKS,
        "spec.clusters": WORKS,
        "spec.quotaManagement": differs("a cluster that was lost counts until workerLostTimeout"),
    },
    "ProvisioningRequestConfig": {
        "spec": WORKS,
        "spec.managedResources": WORKS,
        "spec.parameters": WORKS,
        "spec.podSetMergePolicy": WORKS,
        "spec.podSetUpdates": WORKS,
        "spec.podSetUpdates.nodeSelector": WORKS,
        "spec.podSetUpdates.nodeSelector[].key": WORKS,
        "spec.podSetUpdates.nodeSelector[].valueFromProvisioningClassDetail": WORKS,
        "spec.provisioningClassName": WORKS,
        "spec.retryStrategy": WORKS,
        "spec.retryStrategy.backoffBaseSeconds": WORKS,
        "spec.retryStrategy.backoffLimitCount": WORKS,
        "spec.retryStrategy.backoffMaxSeconds": WORKS,
    },
    "ResourceFlavor": {
        "spec": WORKS,
        "spec.nodeLabels": WORKS,
        "spec.nodeTaints": WORKS,
        "spec.nodeTaints[].effect": WORKS,
        "spec.nodeTaints[].key": WORKS,
        "spec.nodeTaints[].timeAdded": works("kept; it decides nothing, as in Kueue"),
        "spec.nodeTaints[].value": WORKS,
        "spec.tolerations": WORKS,
        "spec.tolerations[].effect": WORKS,
        "spec.tolerations[].key": WORKS,
        "spec.tolerations[].operator": WORKS,
        "spec.tolerations[].tolerationSeconds": WORKS,
        "spec.tolerations[].value": WORKS,
        "spec.topologyName": WORKS,
    },
    "Topology": {
        "spec": WORKS,
        "spec.levels": WORKS,
        "spec.levels[].nodeLabel": WORKS,
    },
    "WorkloadPriorityClass": {
        "description": WORKS,
        "value": WORKS,
    },
}
