"""A stand-in for JobSet (sigs.k8s.io/jobset), for the local control plane only.

JobSet is a separate product that users install in their clusters; Gangline works with that one and never imports this
package. On the local control plane, where nobody installs anything, the stand-in plays its part: child Jobs, suspend and
resume, restarts by `failurePolicy.maxRestarts` (Recreate and BlockingRecreate), success policy, exclusive topology, status.
It leaves out failure policy rules, startup order, `dependsOn`, coordinators, network policies of their own and TTLs.

Where JobSet itself is in the cluster, or arrives there later, the stand-in steps aside (`presence`).

`python -m gangline.devcluster.jobset --kubeconfig FILE` installs a CRD that checks nothing, and runs it.
"""
