"""Admission and conversion webhooks: a stateless HTTPS server in front of `gangline.api`'s rules."""
