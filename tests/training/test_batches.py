import itertools
import math

import pytest
import torch

from feature_alignment.training.batches import RandomCropAndFlip, epoch_batches, steps_per_epoch


def draw(number, n=10, size=4, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    return list(itertools.islice(epoch_batches(n, size, generator, **options), number))


def test_every_example_is_seen_once_per_epoch_in_another_order():
    batches = draw(6)
    assert [len(batch) for batch in batches] == [4, 4, 2, 4, 4, 2]
    for epoch in (batches[:3], batches[3:]):
        assert sorted(torch.cat(epoch).tolist()) == list(range(10))
    assert not torch.equal(torch.cat(batches[:3]), torch.cat(batches[3:]))


def test_the_incomplete_batch_can_be_dropped():
    batches = draw(4, drop_incomplete=True)
    assert [len(batch) for batch in batches] == [4, 4, 4, 4]
    assert len(set(torch.cat(batches[:2]).tolist())) == 8


def test_the_generator_alone_decides_the_order():
    assert torch.equal(torch.cat(draw(5, seed=1)), torch.cat(draw(5, seed=1)))
    assert not torch.equal(torch.cat(draw(3, seed=1)), torch.cat(draw(3, seed=2)))


def test_a_batch_larger_than_the_data_is_all_of_it():
    assert [len(batch) for batch in draw(2, n=3, size=8)] == [3, 3]


def test_one_example_and_all_examples_are_possible_batches():
    assert [len(batch) for batch in draw(3, n=3, size=1)] == [1, 1, 1]
    assert [len(batch) for batch in draw(2, n=3, size=3, drop_incomplete=True)] == [3, 3]


@pytest.mark.parametrize(("size", "options"), [(0, {}), (11, {"drop_incomplete": True})])
def test_impossible_sizes_are_refused(size, options):
    with pytest.raises(ValueError, match=f"batch_size: {size} is not possible with 10 examples"):
        draw(1, size=size, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draw(1, n=0, size=1), "n: 0; it must be"),
        (lambda: draw(1, n=0, size=1, drop_incomplete=True), "n: 0; it must be"),
        (lambda: steps_per_epoch(5, 0), "batch_size: 0; it must be"),
        (lambda: steps_per_epoch(5, -1), "batch_size: -1; it must be"),
        (lambda: RandomCropAndFlip(torch.Generator(), padding=-1), "padding: -1; it must be"),
    ],
)
def test_impossible_numbers_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("n", "size"), [(10, 4), (12, 4), (3, 8)])
def test_steps_per_epoch_counts_the_batches(n, size):
    number = steps_per_epoch(n, size)
    assert sorted(torch.cat(draw(number, n=n, size=size)).tolist()) == list(range(n))


def crops(image, padding):
    """All images that cropping and mirroring can make, one slice after the other."""
    _, height, width = image.shape
    padded = torch.zeros(image.shape[0], height + 2 * padding, width + 2 * padding)
    padded[:, padding : padding + height, padding : padding + width] = image
    cut = [
        padded[:, top : top + height, left : left + width]
        for top in range(2 * padding + 1)
        for left in range(2 * padding + 1)
    ]
    return cut + [part.flip(2) for part in cut]


def test_crops_and_mirrorings_are_slices_of_the_padded_image_all_equally_likely():
    image = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))
    possible = {tuple(cut.flatten().tolist()): 0 for cut in crops(image, 1)}
    assert len(possible) == 18
    number = 9_000
    augment = RandomCropAndFlip(torch.Generator().manual_seed(0), padding=1)
    for cut in augment(image.expand(number, -1, -1, -1)):
        possible[tuple(cut.flatten().tolist())] += 1
    expected = number / 18
    assert all(abs(count - expected) < 5 * math.sqrt(expected) for count in possible.values())


def test_each_image_of_a_batch_is_changed_in_its_own_way_and_the_batch_is_left_alone():
    images = torch.randn(8, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    before = images.clone()
    augmented = RandomCropAndFlip(torch.Generator().manual_seed(0), padding=2)(images)
    again = RandomCropAndFlip(torch.Generator().manual_seed(0), padding=2)(images)
    assert torch.equal(images, before)
    assert torch.equal(augmented, again)
    for image, cut in zip(images, augmented, strict=True):
        assert any(torch.equal(cut, other) for other in crops(image, 2))
    assert not torch.equal(augmented[0], augmented[1])


def test_the_padding_is_the_usual_one_of_four_pixels():
    images = torch.randn(8, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    usual, four = (
        RandomCropAndFlip(torch.Generator().manual_seed(0), **options)
        for options in ({}, {"padding": 4})
    )
    assert torch.equal(usual(images), four(images))
