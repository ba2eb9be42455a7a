"""Admission and conversion webhooks: a stateless HTTPS server in front of `gangline.api`'s rules.

More than a dozen modules: half of them serve reviews, the others register the webhooks and keep their certificates.
"""
