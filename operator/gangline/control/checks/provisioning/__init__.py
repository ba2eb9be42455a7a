"""Admission checks that ask a cluster autoscaler for the nodes of a workload, by ProvisioningRequests.

In: AdmissionChecks with this controller, their ProvisioningRequestConfigs, Workloads with quota, the requests and their
PodTemplates. Out: requests and templates, the state of the check on the Workload, and whether each AdmissionCheck is active.
"""
