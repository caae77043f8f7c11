"""Title, authors, venue and address of the paper."""

from feature_alignment.pipeline.papers import Paper

PAPER = Paper(
    title="Feature learning as alignment: a structural property "
    "of gradient descent in non-linear neural networks",
    authors="Beaglehole, Mitliagkas & Agarwala",
    venue="TMLR",
    url="https://arxiv.org/abs/2402.05271",
)
