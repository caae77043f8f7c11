"""Errors during training."""

from feature_alignment.errors import UserError


class TrainingDivergedError(UserError):
    """The loss or the parameters stopped being finite; the message says where and what to do."""


class GradientsNotFiniteError(TrainingDivergedError):
    """Gradients are not finite though outputs are: training diverged, or the model has a fault.

    For example a norm, which has no derivative at 0.
    """


class MetricNotFiniteError(UserError, ArithmeticError):
    """A probe returned a value that is not finite, which must not enter a table silently.

    Metrics of a working network are finite; those of one that is too small or dead may not be.
    """
