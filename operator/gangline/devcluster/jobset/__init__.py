"""A stand-in for JobSet (sigs.k8s.io/jobset), for the local control plane only.

JobSet is a separate product that users install in their clusters; Gangline works with it and never imports this package. On the
local control plane, where it is not installed, the stand-in replaces it: child Jobs, suspend and resume, restarts by
`failurePolicy.maxRestarts` (Recreate and BlockingRecreate), success policy, exclusive topology, status. It lacks failure policy
rules, startup order, `dependsOn`, coordinators, network policies of their own and TTLs.

If JobSet itself is in the cluster, or is installed later, the stand-in stops (`controller.appears`).

`python -m gangline.devcluster.jobset --kubeconfig FILE` installs a CRD without validation, and runs it.
"""
