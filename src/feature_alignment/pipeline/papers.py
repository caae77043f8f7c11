"""The papers that are replicated, and where their parts are."""

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


def module_name(part: str, name: str) -> str:
    """Dotted name of the module of an experiment or a figure.

    Args:
        part: "experiments" or "figures".
        name: the paper's key and the module's own name, joined by an underscore.

    Example:
        >>> module_name("figures", "lejeune2024_fig2")
        'feature_alignment.papers.lejeune2024.figures.fig2'
    """
    paper, _, own = name.partition("_")
    return f"feature_alignment.papers.{paper}.{part}.{own}"
