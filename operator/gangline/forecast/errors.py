"""What can go wrong with a model and its training."""

from __future__ import annotations


class ModelError(ValueError):
    """A file that holds no model, or one that this version cannot use."""


class TooFewRunsError(ValueError):
    """There is not enough history to train on."""


class TrainingError(RuntimeError):
    """The worker failed; the message is the last line that it said."""
