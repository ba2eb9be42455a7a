"""Errors of models, their training, and the history."""

from __future__ import annotations


class ModelError(ValueError):
    """The file contains no model, or one that this version cannot use."""


class TooFewRunsError(ValueError):
    """There is not enough history to train on."""


class TrainingError(RuntimeError):
    """The worker failed; the message is the last line of its stderr."""


class StoreError(RuntimeError):
    """The history cannot be read or written; the message names the database without its password."""
