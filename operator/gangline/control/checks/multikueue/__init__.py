"""Admission checks that send workloads to other clusters (MultiKueue), on the side of the manager cluster.

In: AdmissionChecks with this controller, their MultiKueueConfigs and MultiKueueClusters, Workloads with quota, their jobs, and in
each cluster the Workloads and jobs with the label of this manager. Out: copies of Workloads and jobs in other clusters, the state
of the check, the status of the job here, and whether each cluster is connected.

`plan` decides, on what all clusters were last seen to hold. A cluster has a connection of its own (`clusters`), so that one
that hangs delays no other. `workloads` gathers what the plan reads, and carries out its steps.
"""
