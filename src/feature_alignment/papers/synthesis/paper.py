"""Title, authors and venue of this study."""

from feature_alignment.pipeline.papers import Paper

PAPER = Paper(
    title="The quantities of three papers on the same trainings",
    authors="this project",
    venue="our own study",
)
