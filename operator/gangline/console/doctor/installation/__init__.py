"""The checks of an installation: `gangline admin doctor --cluster`."""

from __future__ import annotations

from typing import Final

from gangline.console.doctor import node_growth
from gangline.console.doctor.examination import Check, Examination
from gangline.console.doctor.installation import (
    granted,
    kinds,
    kueue_leftovers,
    leadership,
    processes,
    queues,
    setup,
    webhooks,
)

EXAMINATION: Final = Examination(
    (  # what comes first may be the cause of what comes later
        Check("Kubernetes", kinds.kubernetes),
        Check("clocks", kinds.clocks),
        Check("your rights", granted.asker),
        Check("kinds", kinds.definitions),
        Check("conversion", kinds.conversion),
        Check("webhooks registered", webhooks.registered),
        Check("webhooks' certificates", webhooks.certificates),
        Check("webhooks answer", webhooks.answers),
        Check("processes", processes.deployments),
        Check("images", processes.images),
        Check("Pod Security", processes.pod_security),
        Check("configuration", granted.configuration),
        Check("lease", leadership.lease),
        Check("leader", leadership.leader, seconds=30.0),
        Check("visibility API", leadership.visibility),
        Check("operator's rights", granted.operator, seconds=30.0),
        Check("webhooks' rights", granted.webhooks, seconds=30.0),
        Check("Kueue's controller", kueue_leftovers.controller),
        Check("Kueue's webhooks", kueue_leftovers.dead_webhooks),
        Check("Kueue's finalizers", kueue_leftovers.finalizers),
        Check("ClusterQueues", queues.cluster_queues),
        Check("LocalQueues", queues.local_queues),
        Check("QueuePolicies", setup.policies),
        Check("namespaces", setup.namespaces),
        Check("flavors", setup.flavors, seconds=30.0),
        Check("quota", setup.quota, seconds=30.0),
        Check("nodes of flavors", node_growth.flavors, seconds=30.0),
        Check("Workloads", queues.workloads, seconds=60.0),
        Check("pods' sizes", setup.pod_sizes, seconds=60.0),
        Check("jobs", queues.jobs, seconds=60.0),
        Check("jobs without a queue", setup.unqueued_jobs, seconds=60.0),
    ),
    words={"ok": "ok", "warning": "warning", "failure": "failure", "unknown": "not known"},
)
