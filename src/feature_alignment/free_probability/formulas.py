"""Formulas for traces of words, derived with symbols and printed as the paper prints them.

A data letter is split into its trace and its centred part, A = tr[A] + Ā, as in the paper.
"""

import unicodedata
from functools import cache
from itertools import product

import sympy

from feature_alignment.free_probability.words import canonical_rotation, free_trace

_BAR = "\N{COMBINING MACRON}"
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def trace_formula(word: str, weight: str = "R") -> sympy.Expr:
    """tr(word) as a polynomial in traces of centred data words and of powers of the weight letter.

    The data letters, all but `weight`, are free of it, but neither of each other nor commuting.

    Source: beaglehole2024, Appendix F, whose eq. 20, 22 and 28 are the formulas of ARARBR, ARAR
    and ARBRARBR.

    Args:
        word: letters; words with equal centred traces are taken as equal only if they are
            rotations of each other.
        weight: the letter that is free of all others.

    Returns:
        The expanded polynomial; its symbols are those of `data_trace_symbol` and
        `moment_symbol`.

    Example:
        >>> print(formula_text(trace_formula("ARBR")))
        tr[A]·tr[B]·tr[R²] + tr[ĀB̄]·tr[R]²
    """
    data = "".join(sorted(set(word) - {weight}))
    families = {weight: lambda w: moment_symbol(len(w), weight), data: _in_centred_letters}
    return sympy.expand(free_trace(word, families))


@cache
def moment_symbol(power: int, weight: str = "R") -> sympy.Symbol:
    """The symbol tr[R^power]."""
    return sympy.Symbol(f"tr[{_powers(weight * power)}]")


@cache
def data_trace_symbol(word: str) -> sympy.Symbol:
    """The symbol of a data trace: of the letter itself, tr[A], or of centred letters, tr[ĀB̄].

    Example:
        >>> data_trace_symbol("BAA"), data_trace_symbol("B")
        (tr[Ā²B̄], tr[B])
    """
    if len(word) == 1:
        return sympy.Symbol(f"tr[{word}]")
    return sympy.Symbol(f"tr[{_powers(canonical_rotation(word), bar=_BAR)}]")


def formula_text(formula: sympy.Expr, weight: str = "R") -> str:
    """A formula of `trace_formula`, one product of data traces after the other.

    Args:
        formula: the polynomial.
        weight: the letter whose moments become the factors of each product.

    Returns:
        Text such as tr[A]²·(tr[R²] − tr[R]²).
    """
    data = sorted(
        (s for s in formula.free_symbols if weight not in s.name),
        key=lambda s: (len(s.name), s.name),
    )
    terms = sympy.Poly(formula, *data).terms()
    return " + ".join(_term_text(exponents, data, factor) for exponents, factor in terms)


def _in_centred_letters(word: str) -> sympy.Expr:
    """The trace of a data word, by expanding each letter as tr[A] + Ā."""
    total = sympy.Integer(0)
    for centred in product((True, False), repeat=len(word)):
        kept = "".join(letter for letter, keep in zip(word, centred, strict=True) if keep)
        if len(kept) == 1:  # tr[Ā] = 0
            continue
        term = data_trace_symbol(kept) if kept else sympy.Integer(1)
        for letter, keep in zip(word, centred, strict=True):
            if not keep:
                term *= data_trace_symbol(letter)
        total += term
    return total


def _powers(word: str, bar: str = "") -> str:
    """A word with repeated letters as powers: "AAB" gives A²B."""
    parts: list[list] = []
    for letter in word:
        if parts and parts[-1][0] == letter:
            parts[-1][1] += 1
        else:
            parts.append([letter, 1])
    text = "".join(_power_text(letter + bar, count) for letter, count in parts)
    return unicodedata.normalize("NFC", text)  # Ā has a character of its own


def _power_text(base: str, exponent: int) -> str:
    return base + (str(exponent).translate(_SUPERSCRIPTS) if exponent > 1 else "")


def _term_text(exponents: tuple[int, ...], data: list[sympy.Symbol], factor: sympy.Expr) -> str:
    number, factors = sympy.factor_list(factor)
    if number < 0 and factors[-1][1] == 1:  # SymPy's sign of a sum is arbitrary
        number, factors = -number, [*factors[:-1], (sympy.expand(-factors[-1][0]), 1)]
    parts = [] if number == 1 else [str(number)]
    parts += [
        _power_text(symbol.name, exponent)
        for symbol, exponent in zip(data, exponents, strict=True)
        if exponent
    ]
    for base, exponent in factors:
        text = base.name if base.is_Symbol else f"({_sum_text(base)})"
        parts.append(_power_text(text, exponent))
    return "·".join(parts)


def _sum_text(expression: sympy.Expr) -> str:
    text = ""
    terms = [term.as_coeff_mul() for term in expression.as_ordered_terms()]
    for number, factors in sorted(terms, key=lambda term: bool(term[0] < 0)):
        powers = [factor.as_base_exp() for factor in factors]
        parts = [str(abs(number))] if abs(number) != 1 else []
        parts += [_power_text(base.name, int(exponent)) for base, exponent in powers]
        sign = " − " if number < 0 else " + " if text else ""
        text += sign + "·".join(parts)
    return text
