"""Where samples are in a tensor, and how parameters get to where they meet samples."""

import pytest
import torch
from torch.nn import functional as F

from feature_alignment.gradients.graph import (
    ODD,
    Graph,
    Place,
    is_selection,
    sample_place,
    selected_entries,
)
from toys import draw

N = 4
PLACES = [
    Place(axis, before, after)
    for axis in (0, 1, 2)
    for before, after in ((1, 1), (1, 3), (2, 1), (2, 3))
]


def by_sample(place):
    """A tensor with samples at this place, and each sample's positions in it: (n, positions, …)."""
    positions = place.before * place.after
    sizes = [5, 6]
    t = draw(*sizes[: place.axis], N * positions, *sizes[place.axis :])
    rows = torch.arange(N * positions).view(place.before, N, place.after).transpose(0, 1).flatten(1)
    return t, torch.stack([t.movedim(place.axis, 0)[row] for row in rows])


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_samples_come_first_and_their_positions_keep_their_order(place):
    t, expected = by_sample(place)
    assert torch.equal(place.samples_first(t), expected)


@pytest.mark.parametrize("others", [(5, 6), (1, 6), (5, 1), (1, 1)])
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_sums_are_over_each_samples_positions(place, others):
    t, rows = by_sample(place)
    axes = [axis + 2 for axis, size in enumerate(others) if size == 1]
    rows = rows.sum(axes, keepdim=True) if axes else rows
    shape = [*others[: place.axis], 1, *others[place.axis :]]
    torch.testing.assert_close(place.sum_to(t, shape), rows.sum(1).flatten(1))
    if place.before == 1:  # as a whole period, which `repeat` tiles
        shape[place.axis] = place.after
        expected = rows.movedim(1, 1 + place.axis).flatten(1)
        torch.testing.assert_close(place.sum_to(t, shape), expected)


@pytest.mark.parametrize(
    ("few", "more", "place"),
    [
        ((5, 6), (5, 6), None),
        ((2, 5), (3, 5), (0, 1)),
        ((5, 8), (5, 12), (1, 4)),
        ((2, 6), (3, 4), ODD),  # of as many numbers
        ((2, 4), (3, 6), ODD),  # along two axes
        ((2,), (3, 5), ODD),
        ((5,), (7,), ODD),
        ((4,), (5,), ODD),
    ],
)
def test_samples_are_along_the_one_axis_that_grows_with_them(few, more, place):
    assert sample_place(torch.Size(few), torch.Size(more), (2, 3)) == place


def selected(function, size):
    """The entries that a function takes of a parameter, and those that it is found to take."""
    p = torch.zeros(size, requires_grad=True)
    graph = Graph(function(p) * 1.0, {"p": p})
    source = graph.inputs[0][0]
    return function(torch.arange(p.numel()).view(p.shape)).flatten(), (graph, source, p)


@pytest.mark.parametrize(
    "function",
    [
        lambda p: p.flip(0),
        lambda p: p[3:4097],
        lambda p: p.view(50, 100).T[7:, ::3],
        lambda p: p.chunk(3)[1],
        lambda p: F.embedding(torch.tensor([[7, 0], [3, 9]]), p.view(500, 10).float()),
    ],
)
def test_selected_entries_are_found_in_large_parameters_too(function):
    expected, (graph, source, p) = selected(function, 5000)
    assert torch.equal(selected_entries(graph, source, p, None), expected.long())
    assert is_selection(graph, source, p, None, expected.long())
    assert not is_selection(graph, source, p, None, expected.long().flip(0))
    assert not is_selection(graph, source, p, None, expected.long()[:-1])


@pytest.mark.parametrize(
    "function",
    [
        lambda p: 2 * p,
        lambda p: -p[1:],
        lambda p: p[[0, 0, 1]],
        lambda p: p.expand(2, -1),
        lambda p: p[:2] + p[2:4],
        lambda p: torch.cat([p[:2] - 1, p[2:4].square()]),
    ],
)
def test_other_functions_select_no_entries(function):
    _, (graph, source, p) = selected(function, 6)
    assert selected_entries(graph, source, p, None) is None


def test_a_transposed_matrix_is_read_by_its_rows():
    expected, (graph, source, p) = selected(lambda p: p[1:].T, (4, 3))
    found = selected_entries(graph, source, p, graph.shape(source))
    assert torch.equal(found, torch.arange(3, 12))
    assert torch.equal(selected_entries(graph, source, p, None), expected)
    assert is_selection(graph, source, p, graph.shape(source), torch.arange(3, 12))
    assert not is_selection(graph, source, p, None, torch.arange(3, 12))


CHOICES = {
    "index": lambda x, i: x[i],
    "index of two axes": lambda x, i: x[:, None][:, [0, 0, 0], i],
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(-1, 3)),
    "mask": lambda x, i: x.masked_select(F.one_hot(i, 3).bool()),
    "index_add": lambda x, i: x.index_add(0, i, 2 * x),
    "index_put": lambda x, i: x.index_put((i,), 2 * x),
    "scatter": lambda x, i: x.scatter(0, i[:, None].expand(-1, 3), 2 * x),
}


@pytest.mark.parametrize("choose", CHOICES.values(), ids=CHOICES)
def test_a_path_is_the_same_only_with_the_same_entries(choose):
    def graph(*order):
        p = torch.ones(3, 3, requires_grad=True)
        return Graph(choose(p.sin(), torch.tensor(order)).sum()[None], {"p": p})

    assert graph(0, 2, 1).same_path(graph(0, 2, 1))
    assert not graph(0, 2, 1).same_path(graph(1, 2, 0))


def test_a_path_is_another_with_other_shapes():
    def graph(n):
        p = torch.ones(3, requires_grad=True)
        return Graph((p * torch.ones(n, 1)).sum()[None], {"p": p})

    assert graph(4).same_path(graph(4))
    assert not graph(4).same_path(graph(5))
