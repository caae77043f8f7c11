"""Title, authors, venue and address of the paper."""

from feature_alignment.pipeline.papers import Paper

PAPER = Paper(
    title="Implicit Regularization via Neural Feature Alignment",
    authors="Baratin et al.",
    venue="AISTATS 2021",
    url="https://arxiv.org/abs/2008.00938",
)
