"""The kinds with a module of their own in `gangline.jobs`: what they have in common with all others."""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline.api.jobkinds.declaration import Declaration, Path, Words, labelled
from gangline.api.jobkinds.node_loss import ALWAYS_RESTARTS, BY_ITS_SPEC, REPLACES
from gangline.kube.resources import GPU_JOBS, JOB_SETS, JOBS

#: on the pods of a JobSet
REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
#: of Jobs and JobSets
EXPIRY: Final[Path] = ("spec", "ttlSecondsAfterFinished")
JOB: Final = Declaration(
    resource=JOBS,
    framework="batch/job",
    optional=False,
    by_default=True,
    shipped=True,
    managed_by=("spec", "managedBy"),
    controller="kubernetes.io/job-controller",
    expiry=EXPIRY,
    elastic=True,
    node_loss=REPLACES,
    words=Words(
        pod_sets="`main`: min(parallelism, completions)",
        ready="pods ready or succeeded",
        finished="Complete, Failed",
    ),
)
JOB_SET: Final = Declaration(
    resource=JOB_SETS,
    framework="jobset.x-k8s.io/jobset",
    by_default=True,
    shipped=True,
    managed_by=("spec", "managedBy"),
    controller="jobset.sigs.k8s.io/jobset-controller",
    expiry=EXPIRY,
    holds_children=True,
    node_loss=ALWAYS_RESTARTS,
    pod_set_of=labelled(REPLICATED_JOB),
    words=Words(
        pod_sets="each replicated job: replicas × min(parallelism, completions)",
        ready="all Jobs ready or succeeded",
        finished="Completed, Failed",
    ),
)
GPU_JOB: Final = Declaration(
    resource=GPU_JOBS,
    holds_children=True,
    node_loss=BY_ITS_SPEC,
    pod_set_of=labelled(names.ROLE_LABEL),
    words=Words(pod_sets="each role: its replicas", ready="all roles ready", finished="Complete, Failed"),
)
KINDS: Final = (JOB, GPU_JOB, JOB_SET)
