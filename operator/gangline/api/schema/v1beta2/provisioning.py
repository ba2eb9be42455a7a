"""ProvisioningRequestConfig: how an admission check asks a cluster autoscaler for nodes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gangline.api.schema.common import DNS_SUBDOMAIN, Int32, KubeObject, ResourceName
from gangline.api.schema.json_schema import LIST_SET, ApiModel, list_map

Parameter = Annotated[str, Field(max_length=255)]


class RetryStrategy(ApiModel):
    """When and how often a failed request is made again. Between the attempts the workload gives its quota back."""

    backoff_limit_count: Int32 = 3
    """How many times a request is made again. After that the workload is deactivated."""
    backoff_base_seconds: Int32 = 60
    """The wait before the second attempt. It doubles with each further attempt."""
    backoff_max_seconds: Int32 = 1800
    """The longest wait that doubling leads to."""


class NodeSelectorUpdate(ApiModel):
    """A node label by which the pods find the new nodes."""

    key: Annotated[
        str,
        Field(
            min_length=1,
            max_length=317,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        ),
    ]
    """The label's key."""
    value_from_provisioning_class_detail: Annotated[str, Field(min_length=1, max_length=32768)]
    """The entry of the ProvisioningRequest's status.provisioningClassDetails that holds the label's value."""


class PodSetUpdates(ApiModel):
    """What the pods get once their nodes are there, beside the annotations that name the request."""

    node_selector: Annotated[list[NodeSelectorUpdate], Field(max_length=8), list_map("key")] | None = None
    """Node labels, with values from the request's status."""


class ProvisioningRequestConfigSpec(ApiModel):
    """The requested class, and how often a request is repeated."""

    provisioning_class_name: Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
    """The way of provisioning, one that the autoscaler knows, such as check-capacity.autoscaling.x-k8s.io."""
    parameters: Annotated[dict[str, Parameter], Field(max_length=100)] | None = None
    """Parameters of the class. A job's annotations provreq.kueue.x-k8s.io/NAME take precedence."""
    managed_resources: Annotated[list[ResourceName], Field(max_length=100), LIST_SET] | None = None
    """Resources whose nodes are provisioned: only pod sets that ask for one of them are requested, and a workload without such a
    pod set needs no request. Left out: every pod set is requested."""
    retry_strategy: RetryStrategy = RetryStrategy()
    """When and how often a failed request is made again."""
    pod_set_updates: PodSetUpdates | None = None
    """The changes to the pods once their nodes are there."""
    pod_set_merge_policy: Literal["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"] | None = None
    """Which pod sets are requested as one. IdenticalPodTemplates: those with the same template.
    IdenticalWorkloadSchedulingRequirements: those with the same requests, node selector, affinity, tolerations and claims. Left
    out: none."""


class ProvisioningRequestConfig(KubeObject):
    """How an admission check with the controller kueue.x-k8s.io/provisioning-request asks a cluster autoscaler for nodes."""

    spec: ProvisioningRequestConfigSpec | None = None
    """The requested class, and how often a request is repeated."""
