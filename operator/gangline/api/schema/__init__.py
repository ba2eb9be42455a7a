"""The kinds as pydantic models, and the custom resource definitions made of them.

In: the models. Out: CRDs, JSON schemas.
"""
