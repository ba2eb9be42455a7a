"""Errors of models and their training."""

from __future__ import annotations


class ModelError(ValueError):
    """The file contains no model, or one that this version cannot use."""


class TooFewRunsError(ValueError):
    """There is not enough history to train on."""


class TrainingError(RuntimeError):
    """The worker failed; the message is the last line of its stderr."""
