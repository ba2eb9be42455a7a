"""The admission checks that Gangline answers: `provisioning` and `multikueue`, and whether each check is active.

In: AdmissionChecks, and Workloads with quota that wait for them. Out: the states of checks on Workloads, the condition Active of
AdmissionChecks. Checks of other controllers are left to them.
"""
