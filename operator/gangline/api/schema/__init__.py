"""The kinds as pydantic models, and the custom resource definitions generated from them.

In: the models. Out: CRDs, JSON schemas.
"""
