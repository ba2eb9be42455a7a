"""Sets of changed keys, one for each reader that has to look at them. Each reader subscribes to its kinds of change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from gangline.control.parts.changed_keys import ChangedKeys
from gangline.kube.resources import Resource

#: a job: its kind and its key
JobRef: TypeAlias = tuple[Resource, str]


@dataclass(frozen=True, slots=True)
class Changes:
    """The kinds of change that the mirror records; other modules also add to `jobs` and `unowned`."""

    #: jobs to plan again
    jobs: ChangedKeys[JobRef] = field(default_factory=ChangedKeys[JobRef])
    #: Workloads, including deleted ones
    workloads: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: Workloads that no job plans, or that may have lost their job
    unowned: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: Workloads that appeared, or whose jobs did: pods may belong to them
    arrived: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: slices of elastic jobs: uid of the job, key of the first slice, key of the one that changed
    slices: ChangedKeys[tuple[str, str, str]] = field(default_factory=ChangedKeys[tuple[str, str, str]])
    #: Workloads of elastic jobs
    elastic: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: Workloads with placed pods
    placed: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: Workloads with recorded lost nodes
    recovering: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: nodes, including deleted ones
    nodes: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: QueuePolicies and ClusterQueues, which determine the policy of each queue
    policies: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: Workloads with admission checks, with ProvisioningRequests or with PodTemplates of these
    checked: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: AdmissionChecks, and configurations of their controllers
    checks: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
