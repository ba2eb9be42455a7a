"""The changes for a cluster that runs Kueue when Gangline takes over: `gangline admin doctor --from-kueue`.

A finding is a `failure` where something that works now would stop working, a `warning` where something changes, and `ok` where
nothing does. Which kinds and fields Gangline acts on is read from the code that acts on them.
"""

from __future__ import annotations

from typing import Final

from gangline.console.doctor import node_growth
from gangline.console.doctor.changeover import controller, job_kinds, objects, settings, surroundings
from gangline.console.doctor.examination import Check, Examination

EXAMINATION: Final = Examination(
    (
        Check("Kueue", controller.deployment),
        Check("lease", controller.lease),
        Check("webhooks", controller.webhooks),
        Check("configuration", settings.configuration),
        Check("feature gates", settings.feature_gates),
        Check("CRDs", objects.definitions),
        Check("queue objects", objects.readable, seconds=30.0),
        Check("AdmissionChecks", objects.admission_checks),
        Check("ClusterQueues", objects.cluster_queues),
        Check("MultiKueue", objects.multikueue),
        Check("topology", objects.topology),
        Check("nodes of flavors", node_growth.flavors, seconds=30.0),
        Check("Workloads", job_kinds.workloads, seconds=120.0),
        Check("job kinds", job_kinds.labelled, seconds=60.0),
        Check("metrics", surroundings.metrics),
        Check("visibility API", surroundings.visibility),
    ),
    words={"failure": "blocks", "warning": "changes", "ok": "unchanged", "unknown": "not known"},
    grouped=True,
)
