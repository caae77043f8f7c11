"""What is said of the paper."""

from feature_alignment.pipeline.papers import Paper

PAPER = Paper(
    title="Coins That Fall and Losses That Fall",
    authors="Example & Sample",
    venue="made up, 2030",
    url="https://example.org/2030",
)
