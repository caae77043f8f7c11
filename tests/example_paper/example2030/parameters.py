"""Parameters of the paper's experiments: its settings are the defaults."""

from pydantic import Field

from feature_alignment.pipeline.parameters import Count, Parameters, Positive, Share, by_figure


class Coin(Parameters, experiment="coin"):
    """Share of heads in the throws of a coin (Figure 1)."""

    probability: Share = by_figure(0.5, "Probability of heads.")
    throws: Count = Field(default=1_000_000, description="Throws of the coin.")


class Descent(Parameters, experiment="descent"):
    """Loss of a linear model under gradient descent (Figure 2)."""

    samples: Count = Field(default=50, description="Training samples.")
    dimension: Count = Field(default=5, description="Input dimension.")
    learning_rate: Positive = Field(
        default=0.1, description="Step size of full-batch gradient descent."
    )
    steps: Count = Field(default=100, description="Updates.")
