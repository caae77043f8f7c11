"""The list of the papers' statements is current and complete, and quotes are found in texts."""

import facts
import pytest

STATEMENTS = """
statements:
  - {place: Figure 1, statement: Half of the throws are heads., claims: [fig1.*]}
  - {place: Figure 2, statement: The loss falls., claims: [fig2.loss_falls], without: Not its rate.}
  - {place: Section 2, statement: Coins exist., without: Nothing to compute.}
"""


@pytest.fixture
def paper(root, tmp_path):
    """A folder of the made-up paper with the ledger and its statements."""
    folder = tmp_path / "example2030"
    folder.mkdir()
    ledger = root / "tests" / "example_paper" / "example2030" / "claims.yaml"
    (folder / "claims.yaml").write_bytes(ledger.read_bytes())
    (folder / "statements.yaml").write_text(STATEMENTS)
    return folder


def test_the_page_in_docs_is_current(tool, capsys):
    assert tool.main(["--check"]) == 0, capsys.readouterr().err


def test_a_page_that_is_not_current_is_told_and_left_as_it_is(tool, tmp_path, monkeypatch, capsys):
    page = tmp_path / "coverage.md"
    page.write_text("Of last year.")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "PAGE", page)
    assert tool.main(["--check"]) == 1
    assert capsys.readouterr().err.startswith("coverage.md: not current; run python tools/stat")
    assert page.read_text() == "Of last year."
    assert (tool.main([]), tool.main(["--check"])) == (0, 0)


def test_statements_have_their_claims_or_a_reason(tool, paper):
    page = tool.coverage(paper)
    assert "3 statements, 2 of them judged, by 3 claims." in page
    assert "| `fig1.fair_share`, `fig1.bent_share` |" in page
    assert "| `fig2.loss_falls`; Not its rate. |" in page


def test_claims_of_our_own_are_counted_apart(tool, paper):
    ledger = paper / "claims.yaml"
    ledger.write_text(ledger.read_text().replace("kind: comparison", "kind: ours", 1))
    assert "by 2 claims and 1 of our own." in tool.coverage(paper)


def test_statements_that_no_claim_judges_are_not_followed(paper, monkeypatch):
    monkeypatch.setattr(facts, "PAPERS", paper.parent)
    found = facts.Facts([], paper)
    assert (found.stated(paper.name), found.followed(paper.name)) == ("3", "2")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("fig2.loss_falls", "fig2.loss_rises", "no claim 'fig2.loss_rises'"),
        ("fig1.*", "fig1.fair*", "no statement names the claims fig1.bent_share"),
        (", without: Nothing to compute.", "", "name the claims that judge it, or say why none"),
        ("place: Section 2", "where: Section 2", "where: unknown key; allowed: claims, place"),
    ],
)
def test_a_mistake_in_the_statements_is_one_sentence(tool, paper, old, new, sentence):
    (paper / "statements.yaml").write_text(STATEMENTS.replace(old, new))
    with pytest.raises(tool.UserError, match=sentence) as caught:
        tool.coverage(paper)
    assert "\n" not in str(caught.value)


def test_quotes_are_found_whatever_their_typesetting(tool, paper, tmp_path):
    text = "**Half of** the $throws$; $.900$ of a million. It falls by orders-of magnitude"
    (tmp_path / "example2030.md").write_text(text)
    assert tool.missing_quotes(paper, tmp_path) == []
    (tmp_path / "example2030.md").write_text(text.replace("million", "billion"))
    (missing,) = tool.missing_quotes(paper, tmp_path)
    assert missing.startswith("example2030.fig1.bent_share: quote: '.900 of a million'")


def test_greek_letters_are_alike_however_written(tool):
    assert tool.plain(r"$\lambda_{1}$ is **larger**") == tool.plain("λ_1 is larger")


def test_an_arrow_is_no_text_however_written(tool):
    forms = ("v → 0", r"$v \to 0$", r"$v \rightarrow 0$", r"$v\rightarrow0$")
    assert {tool.plain(form) for form in forms} == {"v0"}
    assert tool.plain(r"$\left( a \right)$ \top") == "a"


def test_tags_are_no_text_but_formulas_between_signs_are(tool):
    assert tool.plain("$0 < v$ for <sup>2</sup> all $v > 1$") == "0vfor2allv1"


def test_without_the_papers_text_it_says_so(tool, paper, tmp_path):
    with pytest.raises(tool.UserError, match="no file"):
        tool.missing_quotes(paper, tmp_path / "nowhere")
