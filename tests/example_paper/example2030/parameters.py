"""Parameters of the paper's experiments: its settings are the defaults."""

from feature_alignment.pipeline.parameters import Count, Parameters, Positive, Share, by_figure


class Coin(Parameters, experiment="coin"):
    """Share of heads in the throws of a coin (Figure 1)."""

    probability: Share = by_figure(0.5, "Probability of heads.")
    throws: Count = 1_000_000
    """Throws of the coin."""


class Descent(Parameters, experiment="descent"):
    """Loss of a linear model under gradient descent (Figure 2)."""

    samples: Count = 50
    """Training samples."""
    dimension: Count = 5
    """Input dimension."""
    learning_rate: Positive = 0.1
    """Step size of full-batch gradient descent."""
    steps: Count = 100
    """Updates."""
