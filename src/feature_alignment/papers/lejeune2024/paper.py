"""Title, authors, venue and address of the paper."""

from feature_alignment.pipeline.papers import Paper

PAPER = Paper(
    title="An Adaptive Tangent Feature Perspective of Neural Networks",
    authors="LeJeune & Alemohammad",
    venue="CPAL 2024",
    url="https://arxiv.org/abs/2308.15478",
)
