import numpy as np
import pytest

from feature_alignment.data.text import character_codes, embedded_text, load_text_file
from feature_alignment.errors import UserError


def decoded(arrays: dict[str, np.ndarray]) -> str:
    codes = np.concatenate([arrays["text_train"], arrays["text_test"]])
    return "".join(chr(arrays["vocabulary"][code]) for code in codes)


def test_codes_stand_for_the_text_and_are_split_in_order():
    text = "Grüße, “world”!\n" * 7
    arrays = character_codes(text, "f")
    assert decoded(arrays) == text
    assert len(arrays["text_train"]) == len(text) * 9 // 10
    assert {array.dtype.str for array in arrays.values()} == {"|u1", "<u4"}
    assert (np.diff(arrays["vocabulary"].astype(int)) > 0).all()


def test_256_different_characters_are_the_most():
    text = "".join(chr(200 + i) for i in range(256))
    assert decoded(character_codes(text, "f")) == text
    with pytest.raises(UserError, match=r"f: 257 different characters, wanted at most 256"):
        character_codes(text + "a", "f")


def test_too_short_texts():
    assert len(character_codes("0123456789", "f")["text_test"]) == 1
    for text in ("", "012345678"):
        with pytest.raises(UserError, match=rf"f: {len(text)} characters, wanted at least 10"):
            character_codes(text, "f")


def test_text_file_with_any_line_ends(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\nfour")
    arrays, extra = load_text_file(str(tmp_path / "a.txt"))
    assert decoded(arrays) == "one\ntwo\nthree\nfour"
    assert extra["origin"][0]["file"].endswith("a.txt")


def test_texts_of_one_character_or_with_zeros_are_no_texts(tmp_path):
    with pytest.raises(UserError, match="f: nothing but 'a', 20 times; give a text"):
        character_codes("a" * 20, "f")
    for order in ("LE", "BE"):
        (tmp_path / "a.txt").write_bytes("0123456789".encode(f"utf-16-{order.lower()}"))
        with pytest.raises(UserError, match=rf"holds characters 0, as UTF-16 .* -f UTF-16{order}"):
            load_text_file(str(tmp_path / "a.txt"))


def test_file_that_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"0123456789\xff\xfe")
    with pytest.raises(UserError, match=r"a\.txt: not UTF-8 text \(byte 10\); convert it"):
        load_text_file(str(tmp_path / "a.txt"))


def test_embedded_text_is_english_prose():
    arrays, extra = embedded_text()
    text = decoded(arrays)
    assert len(text) > 30_000
    assert len(arrays["vocabulary"]) < 128
    assert text.isascii()
    assert text.lower().count(" the ") > 200
    assert extra["origin"][0]["package"] == "scikit-learn"


def test_embedded_text_is_learnable():
    # Predicting a character from the two before it beats the most frequent character clearly.
    arrays, _ = embedded_text()
    train, test = arrays["text_train"].astype(int), arrays["text_test"].astype(int)
    size = len(arrays["vocabulary"])
    counts = np.zeros((size * size, size))
    np.add.at(counts, (size * train[:-2] + train[1:-1], train[2:]), 1)
    guess = counts[size * test[:-2] + test[1:-1]].argmax(axis=1)
    frequent = np.bincount(train).argmax()
    accuracy = np.mean(guess == test[2:])
    assert accuracy > 0.35
    assert accuracy > 1.5 * np.mean(test == frequent)
