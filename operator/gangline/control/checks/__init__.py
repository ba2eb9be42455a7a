"""Keeps the condition Active of the AdmissionChecks that Gangline answers, in one place for all their controllers.

In: AdmissionChecks, and what each controller's package says about its own. Out: the condition Active of the checks. Checks of
other controllers are left to them.
"""
