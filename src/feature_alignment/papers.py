"""The papers that are replicated."""

PAPERS = {
    "baratin2021": "Implicit Regularization via Neural Feature Alignment",
    "lejeune2024": "An Adaptive Tangent Feature Perspective of Neural Networks",
    "beaglehole2024": "Feature learning as alignment: a structural property of gradient descent "
    "in non-linear neural networks",
}
"""Titles by citation key."""


def paper_of(name: str) -> str:
    """The citation key of a figure or experiment, the first part of its name.

    Example:
        >>> paper_of("lejeune2024_fig2")
        'lejeune2024'
    """
    return name.partition("_")[0]
