"""Whether the AdmissionChecks that Gangline answers are active: one place that judges and writes it, for all their controllers.

In: AdmissionChecks, and what each controller's room says about its own. Out: the condition Active of the checks. Checks of other
controllers are left to them.
"""
