"""What can go wrong with a development cluster, said so that the reader knows what to do next."""

from __future__ import annotations


class DevClusterError(Exception):
    """A development cluster can't be built, started or reached; the message is meant for the user."""


class BuildError(DevClusterError):
    """A program of the control plane can't be compiled (no Go, no network, a broken build)."""


class StartError(DevClusterError):
    """A program of the control plane did not come up; carries the tail of its log."""
