"""What can go wrong while a network trains."""

from feature_alignment.errors import UserError


class TrainingDivergedError(UserError):
    """The loss or the parameters stopped being finite; the message tells where and what to do."""


class GradientsNotFiniteError(TrainingDivergedError):
    """Gradients are not finite though outputs are: training went too far, or the model has a fault.

    Such as a norm, which has no derivative at 0.
    """


class MetricNotFiniteError(UserError, ArithmeticError):
    """A probe returned a value that is not finite, which no table should silently carry.

    No metric of a network that works is: one that is too small, or that has died, can have such.
    """
