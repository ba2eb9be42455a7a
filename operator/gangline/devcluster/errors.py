"""Errors of a development cluster; each message says what to do next."""

from __future__ import annotations


class DevClusterError(Exception):
    """A development cluster cannot be built, started or reached; the message is meant for the user."""


class BuildError(DevClusterError):
    """A program of the control plane cannot be compiled (no Go, no network, a broken build)."""


class StartError(DevClusterError):
    """A program of the control plane did not start; the message has the tail of its log."""
