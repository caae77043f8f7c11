import itertools

import pytest
import torch

from feature_alignment.training.batches import epoch_batches, steps_per_epoch


def draw(number, n=10, size=4, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    return list(itertools.islice(epoch_batches(n, size, generator, **options), number))


def test_every_example_is_seen_once_per_epoch():
    batches = draw(6)
    assert [len(batch) for batch in batches] == [4, 4, 2, 4, 4, 2]
    for epoch in (batches[:3], batches[3:]):
        assert sorted(torch.cat(epoch).tolist()) == list(range(10))


def test_epochs_have_different_orders():
    batches = draw(6)
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


@pytest.mark.parametrize(("size", "options"), [(0, {}), (11, {"drop_incomplete": True})])
def test_impossible_sizes_are_refused(size, options):
    with pytest.raises(ValueError, match=f"batch_size: {size} is not possible with 10 examples"):
        draw(1, size=size, **options)


@pytest.mark.parametrize(("n", "size"), [(10, 4), (12, 4), (3, 8)])
def test_steps_per_epoch_counts_the_batches(n, size):
    number = steps_per_epoch(n, size)
    assert sorted(torch.cat(draw(number, n=n, size=size)).tolist()) == list(range(n))
