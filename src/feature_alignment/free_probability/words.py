"""Normalised traces of words in freely independent families, from the traces of each family.

A word such as "ARARBR" stands for tr(ARARBR) = (1/d) Tr(A·R·A·R·B·R). Its value depends only on the
traces of words within each family, such as "AAB" or "RR"; the letters of a family need not commute.
Numbers, fractions and symbols all work, because only sums and products are computed.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, starmap
from typing import Any

import torch

from feature_alignment.arrays import Matrix, real_tensor
from feature_alignment.errors import check_kind

Trace = Callable[[str], Any]  # normalised trace of a word in the letters of one family


def free_trace(word: str, families: Mapping[str, Trace]) -> Any:
    """Normalised trace of a word in letters of freely independent families.

    Sums over the possible blocks V of the first letter in a non-crossing partition, whose letters
    w_V are all of its family; g_j are the gaps between letters of V:

        tr(w) = Σ_V κ(w_V) Π_j tr(g_j).

    The free cumulants κ follow from the same equation within a family. Words are rotated so that
    the last family enters through its traces only, never through its cumulants. If the cumulants
    of the other families are positive, as for R of `random_features`, no terms cancel.

    Source: Mingo and Speicher, Free Probability and Random Matrices, Section 2; the paper's
    identities (Beaglehole et al. 2024, eq. 12-15, 20, 22 and, corrected, 28) are special cases.

    Args:
        word: up to about 12 letters; the empty word is the identity.
        families: the trace of words within each family, rotation invariant, keyed by its letters.

    Raises:
        ValueError: if a letter belongs to no family or to two, or a family has no trace.

    Example:
        A projection of trace 1/2 and a semicircular element with tr(S²) = 1:

        >>> projection, semicircle = moment_trace([0.5, 0.5]), moment_trace([0, 1, 0, 2])
        >>> free_trace("PSPS", {"P": projection, "S": semicircle})
        0.25
    """
    family_of: dict[str, int] = {}
    for index, (letters, own) in enumerate(families.items()):
        check_kind(
            f"families: {letters!r}", own, Callable, "a function of words, as matrix_trace does"
        )
        if shared := family_of.keys() & letters:
            raise ValueError(f"the letter {min(shared)} is in two families; it may be in only one.")
        family_of |= dict.fromkeys(letters, index)
    if unknown := set(word) - set(family_of):
        raise ValueError(
            f"{word}: no family contains the letter {min(unknown)}; "
            f"there are {', '.join(families)}."
        )
    last = len(families) - 1
    traces = list(families.values())

    @cache
    def trace(word: str) -> Any:
        if not word:
            return 1
        used = {family_of[letter] for letter in word}
        if len(used) == 1:
            return traces[used.pop()](word)
        start = next(i for i, letter in enumerate(word) if family_of[letter] != last)
        word = word[start:] + word[:start]
        return sum(starmap(term, _blocks_with_first(word, lambda x: family_of[x])))

    @cache
    def cumulant(word: str) -> Any:
        smaller = ((block, gaps) for block, gaps in _blocks_with_first(word) if block != word)
        return trace(word) - sum(starmap(term, smaller))

    def term(block: str, gaps: list[str]) -> Any:
        return cumulant(block) * math.prod(map(trace, gaps))

    return trace(word)


def moments_from_cumulants(cumulants: Sequence[Any]) -> list[Any]:
    """Moments of one element from its free cumulants, m_n = Σ_s κ_s Σ_{i_1+…+i_s=n−s} Π_j m_{i_j}.

    Source: Mingo and Speicher, Free Probability and Random Matrices, Section 2.
    """
    moments: list[Any] = [1]
    for n in range(1, len(cumulants) + 1):
        power = [1] + [0] * (n - 1)  # coefficients of (Σ_i m_i z^i)^s up to z^(n−1), here s = 0
        total = 0
        for s in range(1, n + 1):
            power = [sum(power[i] * moments[j - i] for i in range(j + 1)) for j in range(n)]
            total = total + cumulants[s - 1] * power[n - s]
        moments.append(total)
    return moments[1:]


def moment_trace(moments: Sequence[Any]) -> Trace:
    """Traces of the powers of a single letter, from its moments m_1, m_2 and so on.

    The trace raises ValueError for a word with more letters than there are moments.

    Example:
        >>> moment_trace([1, 4])("RR")
        4
    """

    def trace(word: str) -> Any:
        if len(word) > len(moments):
            raise ValueError(f"moments: {len(moments)} given, where that of {len(word)} is needed.")
        return moments[len(word) - 1] if word else 1

    return trace


def matrix_trace(matrices: Mapping[str, Matrix]) -> Trace:
    """Traces (1/d) Tr of words in given matrices (d, d); products are computed on demand, once.

    The trace raises ValueError for a word with a letter that has no matrix.

    Raises:
        ValueError: if the matrices are not square and of one size, or not named by one letter.

    Example:
        >>> matrix_trace({"A": torch.tensor([[0.0, 1.0], [1.0, 0.0]])})("AA")
        1.0
    """
    matrices = {name: real_tensor(f"matrices: {name!r}", m) for name, m in matrices.items()}
    if any(len(name) != 1 for name in matrices):
        raise ValueError(f"matrices: {', '.join(matrices)}; name each by one letter.")
    shapes = sorted({tuple(matrix.shape) for matrix in matrices.values()})
    if len(shapes) > 1 or any(len(s) != 2 or s[0] != s[1] or s[0] == 0 for s in shapes):
        raise ValueError(f"matrices: of shapes {shapes}; all must be (d, d) with one d above 0.")

    @cache
    def product(word: str) -> torch.Tensor:
        if len(word) == 1:
            matrix = matrices[word]  # its powers may be beyond single precision
            return matrix.to(torch.promote_types(matrix.dtype, torch.float64))
        return product(word[:-1]) @ product(word[-1])

    @cache
    def trace(word: str) -> float:
        if len(word) == 1:
            return float(product(word).diagonal().mean())
        left, right = product(word[: len(word) // 2]), product(word[len(word) // 2 :])
        return float(torch.sum(left * right.T)) / len(left)

    def known(word: str) -> float:
        if unknown := set(word) - matrices.keys():
            raise ValueError(
                f"{word}: there is no matrix {min(unknown)}; there are {', '.join(matrices)}."
            )
        return trace(canonical_rotation(word)) if word else 1.0

    return known


def canonical_rotation(word: str) -> str:
    """The alphabetically first of a word's rotations, which all have the same trace."""
    return min(word[i:] + word[:i] for i in range(len(word)))


def _blocks_with_first(
    word: str, colour: Callable[[str], Hashable] = lambda letter: 0
) -> Iterator[tuple[str, list[str]]]:
    """The blocks that contain the first letter, all letters of its colour, and their gaps."""
    alike = [i for i in range(1, len(word)) if colour(word[i]) == colour(word[0])]
    for size in range(len(alike) + 1):
        for others in combinations(alike, size):
            chosen = (0, *others)
            ends = (*others, len(word))
            gaps = [word[i + 1 : end] for i, end in zip(chosen, ends, strict=True)]
            yield "".join(word[i] for i in chosen), [gap for gap in gaps if gap]
