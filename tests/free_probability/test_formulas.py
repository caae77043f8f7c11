import pytest
import sympy

from feature_alignment.free_probability.formulas import (
    data_trace_symbol,
    formula_text,
    moment_symbol,
    trace_formula,
)

A, B = data_trace_symbol("A"), data_trace_symbol("B")
AA, AB, BB = (data_trace_symbol(word) for word in ("AA", "AB", "BB"))
AAB, ABB, ABAB = (data_trace_symbol(word) for word in ("AAB", "ABB", "ABAB"))
R1, R2, R3, R4 = (moment_symbol(n) for n in range(1, 5))


def assert_equal(derived, typed):
    assert sympy.expand(derived - typed) == 0


def test_equation_20():
    typed = A**2 * B * R3 + 2 * A * R2 * R1 * AB + B * R1 * R2 * AA + R1**3 * AAB
    assert_equal(trace_formula("ARARBR"), typed)


def test_equation_22():
    # The paper gives it in tr[A²] = tr[Ā²] + tr[A]².
    typed = (AA + A**2) * R1**2 + A**2 * R2 - A**2 * R1**2
    assert_equal(trace_formula("ARAR"), typed)


def equation_28(last_term):
    return (
        R1**4 * ABAB
        + 2 * R1**2 * (R2 - R1**2) * AB**2
        + 2 * R1**2 * R2 * (B * AAB + A * ABB)
        + 4 * A * B * R3 * R1 * AB
        + A**2 * B**2 * R4
        + A**2 * BB * R2**2
        + last_term
    )


def test_equation_28_with_its_last_term_corrected():
    assert_equal(trace_formula("ARBRARBR"), equation_28(AA * B**2 * R2**2))


def test_equation_28_as_printed_differs_in_its_last_term_alone():
    # tr[Ā]² tr[B²] tr[R²]², and tr[Ā] = 0.
    difference = sympy.expand(trace_formula("ARBRARBR") - equation_28(0))
    assert difference == AA * B**2 * R2**2


def test_the_text_has_one_product_of_data_traces_after_the_other():
    assert formula_text(trace_formula("ARBRARBR")) == (
        "tr[A]²·tr[B]²·tr[R⁴] + tr[A]²·tr[B̄²]·tr[R²]² + 4·tr[A]·tr[B]·tr[ĀB̄]·tr[R]·tr[R³]"
        " + 2·tr[A]·tr[ĀB̄²]·tr[R²]·tr[R]² + tr[B]²·tr[Ā²]·tr[R²]²"
        " + 2·tr[B]·tr[Ā²B̄]·tr[R²]·tr[R]² + 2·tr[ĀB̄]²·tr[R]²·(tr[R²] − tr[R]²)"
        " + tr[ĀB̄ĀB̄]·tr[R]⁴"
    )


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("AR", "tr[A]·tr[R]"),
        ("RRA", "tr[A]·tr[R²]"),
        ("ARRAR", "tr[A]²·tr[R³] + tr[Ā²]·tr[R]·tr[R²]"),
    ],
)
def test_short_words(word, text):
    assert formula_text(trace_formula(word)) == text


def test_another_letter_for_the_weights():
    assert formula_text(trace_formula("ASBS", weight="S"), weight="S") == (
        "tr[A]·tr[B]·tr[S²] + tr[ĀB̄]·tr[S]²"
    )
