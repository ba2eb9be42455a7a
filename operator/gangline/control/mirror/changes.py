"""Changes in the mirror, by the reader that processes them. Each reader subscribes to what concerns it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from gangline.control.parts.changed_keys import ChangedKeys
from gangline.kube.resources import Resource

#: a job: its kind and its key
JobRef: TypeAlias = tuple[Resource, str]


@dataclass(frozen=True, slots=True)
class Changes:
    """The sorts of changes that the mirror notes; other parts add to `jobs` and `unowned` as well."""

    #: jobs to plan again
    jobs: ChangedKeys[JobRef] = field(default_factory=ChangedKeys[JobRef])
    #: Workloads without a job, or that may have lost it
    unowned: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: Workloads that arrived, or whose jobs did: pods may belong to them
    arrived: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: Workloads with placed pods
    placed: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: Workloads with a record of lost nodes
    recovering: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: nodes, deleted ones included
    nodes: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: QueuePolicies and ClusterQueues, which decide the policies of queues
    policies: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
