import pytest

from feature_alignment.files import whole_file


def test_a_file_takes_its_place_at_the_end(tmp_path):
    path = tmp_path / "sub" / "table.csv"
    with whole_file(path) as partial:
        partial.write_text("new")
        assert partial.suffix == path.suffix
        assert not path.exists()
    assert [file.name for file in path.parent.iterdir()] == ["table.csv"]


def test_a_failure_keeps_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")

    def fail():
        with whole_file(path) as partial:
            partial.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
