import torch
from torch import nn

from feature_alignment.experiments.accuracy_probe import CHUNK, AccuracyProbe


def test_accuracy_is_the_share_of_largest_outputs_at_the_class():
    x = torch.eye(4)
    splits = {"train": (x, torch.arange(4)), "test": (x, torch.tensor([0, 1, 0, 0]))}
    rows = AccuracyProbe(splits)(0, nn.Identity()).rows
    assert [(row.split, row.metric, row.value) for row in rows] == [
        ("train", "accuracy", 1.0),
        ("test", "accuracy", 0.5),
    ]


def test_every_sample_counts_whatever_the_chunks():
    n = CHUNK + 50
    y = torch.arange(n) % 3
    x = nn.functional.one_hot(y, 3).float()
    x[-50:] = -x[-50:]
    (row,) = AccuracyProbe({"test": (x, y)})(0, nn.Identity()).rows
    assert row.value == CHUNK / n
