import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_alignment.determinism import stream, torch_stream
from feature_alignment.free_probability.words import (
    canonical_rotation,
    free_trace,
    matrix_trace,
    moment_trace,
    moments_from_cumulants,
)


def set_partitions(items):
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for partition in set_partitions(rest):
        yield [[first], *partition]
        for i, block in enumerate(partition):
            yield [*partition[:i], [first, *block], *partition[i + 1 :]]


def crosses(partition):
    for v, w in itertools.combinations(partition, 2):
        for a, c in itertools.combinations(v, 2):
            inside = [a < b < c for b in w]
            if any(inside) and not all(inside):
                return True
    return False


@cache
def non_crossing(n):
    return [p for p in set_partitions(list(range(n))) if not crosses(p)]


def by_partitions(word, families):
    """Σ over all non-crossing partitions with blocks within families of the cumulants' product."""
    family_of = {letter: trace for letters, trace in families.items() for letter in letters}

    @cache
    def cumulant(letters, trace):
        whole = [list(range(len(letters)))]
        return trace(letters) - sum(
            math.prod(cumulant("".join(letters[i] for i in block), trace) for block in partition)
            for partition in non_crossing(len(letters))
            if partition != whole
        )

    total = 0
    for partition in non_crossing(len(word)):
        blocks = ["".join(word[i] for i in sorted(block)) for block in partition]
        if all(len({family_of[letter] for letter in block}) == 1 for block in blocks):
            total += math.prod(cumulant(block, family_of[block[0]]) for block in blocks)
    return total


def by_centring(word, families):
    """From tr(c̄₁ c̄₂ … c̄_m) = 0 for neighbours of different families, expanded."""
    family_of = {letter: trace for letters, trace in families.items() for letter in letters}

    @cache
    def trace(word):
        if not word:
            return 1
        runs = ["".join(g) for _, g in itertools.groupby(word, key=family_of.get)]
        if len(runs) == 1:
            return family_of[word[0]](word)
        if family_of[runs[0][0]] == family_of[runs[-1][0]]:
            return trace(runs[-1] + "".join(runs[:-1]))
        total = 0
        for centred in itertools.product((True, False), repeat=len(runs)):
            if all(centred):
                continue
            kept = "".join(run for run, keep in zip(runs, centred, strict=True) if keep)
            dropped = [run for run, keep in zip(runs, centred, strict=True) if not keep]
            sign = (-1) ** (len(dropped) + 1)
            total += sign * math.prod(family_of[r[0]](r) for r in dropped) * trace(kept)
        return total

    return trace(word)


def arbitrary_trace(salt):
    """Any tracial function of words will do; small fractions that look like no known law."""

    @cache
    def trace(word):
        word = canonical_rotation(word)
        code = sum((ord(letter) * 7**i + salt) for i, letter in enumerate(word))
        return Fraction(code % 23 - 7, 1 + code % 5)

    return trace


FAMILIES = {"RS": arbitrary_trace(1), "AB": arbitrary_trace(2), "Z": arbitrary_trace(3)}


def words(letters, shortest):
    drawn = st.lists(st.sampled_from(letters), min_size=shortest, max_size=8)
    return drawn.map("".join)


@settings(max_examples=60, deadline=None)
@given(words("RSABZ", 1))
def test_three_derivations_agree_exactly(word):
    found = free_trace(word, FAMILIES)
    assert found == by_centring(word, FAMILIES)
    if len(word) <= 7:
        assert found == by_partitions(word, FAMILIES)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["ARARARARARAR", "ARBRARBSBSAR", "AARBZSABRZBS"])
def test_words_of_length_twelve(word):
    assert free_trace(word, FAMILIES) == by_centring(word, FAMILIES)


@settings(max_examples=30, deadline=None)
@given(words("RSAB", 2), st.integers(1, 7))
def test_the_trace_is_cyclic(word, shift):
    shift %= len(word)
    rotated = word[shift:] + word[:shift]
    assert free_trace(word, FAMILIES) == free_trace(rotated, FAMILIES)


def test_the_order_of_the_families_does_not_matter():
    reverse = dict(reversed(FAMILIES.items()))
    assert free_trace("ARBRARBR", FAMILIES) == free_trace("ARBRARBR", reverse)


def test_a_scalar_letter_factors_out():
    families = {"R": moment_trace([3, 9, 27, 81]), "AB": arbitrary_trace(2)}
    trace = families["AB"]
    assert free_trace("ARBRARBR", families) == 81 * trace("ABAB")


def test_the_paper_s_classic_product():
    # Beaglehole et al. 2024, eq. 22
    a, r = {1: Fraction(3), 2: Fraction(11)}, {1: Fraction(2), 2: Fraction(5)}
    families = {"A": lambda w: a[len(w)], "R": lambda w: r[len(w)]}
    expected = a[2] * r[1] ** 2 + a[1] ** 2 * r[2] - a[1] ** 2 * r[1] ** 2
    assert free_trace("ARAR", families) == expected


def test_free_poisson_elements_multiply_to_fuss_catalan_numbers():
    catalan = moment_trace([1, 2, 5, 14, 42])
    found = [free_trace("PQ" * n, {"P": catalan, "Q": catalan}) for n in range(1, 5)]
    assert found == [math.comb(3 * n, n) // (2 * n + 1) for n in range(1, 5)]


@settings(deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=5))
def test_moments_are_sums_over_non_crossing_partitions_of_cumulants(values):
    moments = moments_from_cumulants(values)
    families = {"R": moment_trace(moments)}
    for n in range(1, len(values) + 1):
        total = sum(
            math.prod(values[len(block) - 1] for block in partition)
            for partition in non_crossing(n)
        )
        assert total == moments[n - 1] == free_trace("R" * n, families)


def test_matrix_traces():
    generator = torch_stream(0, "tests/words")
    a, b = (torch.randn(5, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    trace = matrix_trace({"A": a, "B": b})
    for word in ("A", "AB", "BA", "BAB", "ABBAB", "ABABAABB"):
        matrices = [{"A": a, "B": b}[letter] for letter in word]
        product = torch.eye(5, dtype=torch.float64)
        for matrix in matrices:
            product = product @ matrix
        assert trace(word) == pytest.approx(float(product.trace()) / 5, rel=1e-12)


def test_letters_without_a_matrix_are_refused():
    trace = matrix_trace({"A": torch.eye(2), "B": torch.eye(2)})
    with pytest.raises(ValueError, match="AXB: there is no matrix X; there are A, B"):
        trace("AXB")


@pytest.mark.parametrize("b", [torch.ones(2, 3), torch.eye(3), torch.ones(2)])
def test_matrices_that_cannot_be_multiplied_are_refused(b):
    with pytest.raises(ValueError, match=r"^matrices: of shapes \[.*\]; all must be \(d, d\)"):
        matrix_trace({"A": torch.eye(2), "B": b})
    if b.shape != (3, 3):
        with pytest.raises(ValueError, match=r"^matrices: of shapes \[.*\]; all must be \(d, d\)"):
            matrix_trace({"B": b})
    with pytest.raises(ValueError, match="with one d above 0"):
        matrix_trace({"A": torch.ones(0, 0)})
    with pytest.raises(ValueError, match=r"^matrices: AB; name each by one letter"):
        matrix_trace({"AB": torch.eye(2)})


def test_letters_without_a_family_and_with_two():
    one = moment_trace([1, 1])
    with pytest.raises(ValueError, match="AXR: no family contains the letter X; there are A, R"):
        free_trace("AXR", {"A": one, "R": one})
    with pytest.raises(ValueError, match="the letter R is in two families"):
        free_trace("AR", {"AR": one, "R": one})


@pytest.mark.parametrize(
    "n",
    [pytest.param(1000, marks=pytest.mark.slow), pytest.param(2000, marks=pytest.mark.exhaustive)],
)
def test_random_words_in_large_random_matrices(n):
    """Words up to length 8 in N × N matrices: sampled traces agree within Monte-Carlo error.

    A and B neither commute nor are free of each other; R and S are rotated at random.
    """
    draws = 3
    generator = torch_stream(0, "tests/monte carlo")
    rng = {"generator": generator, "dtype": torch.float32}
    x = torch.randn(n, n, **rng) / n**0.5
    diagonal = torch.linspace(0, 2, n)
    data = {"A": x.T @ (diagonal[:, None] * x), "B": x.T @ x + torch.diag(diagonal)}
    letters = stream(0, "tests/words")
    drawn = ["".join(letters.choice(list("ABRS"), size)) for size in (4, 5, 6, 7, 8, 8)]
    sampled = {word: [] for word in drawn}
    of_data = matrix_trace(data)  # the same in all draws
    for _ in range(draws):
        w = torch.randn(n, n, **rng) / n**0.5
        r = w.T @ w
        weights = {"R": r, "S": w.T @ (diagonal[:, None] * w)}
        families = {"RS": matrix_trace(weights), "AB": of_data}
        trace = matrix_trace(data | weights)
        for word in drawn:
            sampled[word].append(trace(word) / free_trace(word, families))
    for word, ratios in sampled.items():
        ratio = torch.tensor(ratios)
        # Traces of N × N matrices fluctuate, and differ from their limit, by O(1/N).
        assert ratio.std() < 20 / n, word
        assert abs(ratio.mean() - 1) < 4 * ratio.std() / draws**0.5 + 5 / n, word


def test_a_word_longer_than_the_moments_is_refused():
    with pytest.raises(ValueError, match="moments: 2 given, where that of 3 is needed"):
        moment_trace([1, 4])("RRR")


def test_the_empty_word_is_the_identity():
    assert moment_trace([2, 4])("") == 1
    assert matrix_trace({"A": 3 * np.eye(2)})("") == 1


@pytest.mark.parametrize("word", ["ABRC", "BRCA", "RCAB", "CABR"])
def test_letters_of_one_family_that_meet_over_the_end_of_a_word_keep_their_order(word):
    draw = {"generator": torch_stream(0, "letters"), "dtype": torch.float64}
    trace = matrix_trace({letter: torch.randn(4, 4, **draw) for letter in "ABC"})
    found = free_trace(word, {"R": moment_trace([2.0]), "ABC": trace})
    assert found == pytest.approx(2 * trace("CAB"), rel=1e-12)
    assert trace("CBA") != pytest.approx(trace("CAB"), rel=0.1)
