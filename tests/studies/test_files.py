"""Files of texts: one person per line, whatever is in it."""

import pytest

from sstq.checks import ArgumentError
from sstq.studies.files import read_texts

TEXTS = ["tea", "", "\x0cnew\x1cpage\x85\u2028", "ca\rfé", "\udcff\udc80", "last"]


def test_lines_are_people_whatever_they_hold(tmp_path):
    """A device that refused bytes, or took a line for two people, would tell what it holds."""
    file = tmp_path / "words.txt"
    for start in ("", "\ufeff"):
        for end in ("\n", "\r\n"):
            whole = start + end.join(TEXTS) + end
            file.write_bytes(whole.encode(errors="surrogateescape"))
            assert read_texts(file, None) == [*TEXTS[:4], "\ufffd\ufffd", "last"]
    file.write_bytes(b"")
    assert read_texts(file, None) == []


def test_a_column_of_any_cells(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    # a date beyond the calendar has no Python object
    dates = pa.array([2**61, 0, None], type=pa.timestamp("ms"))
    file = tmp_path / "words.parquet"
    parquet.write_table(pa.table({"word": ["tea", None, "3"], "date": dates}), file)
    assert read_texts(file, "word") == ["tea", None, "3"]
    assert read_texts(file, "date")[::2] == [None, None]


def test_a_table_without_a_header(tmp_path):
    file = tmp_path / "words.csv"
    file.write_text("")
    with pytest.raises(ValueError, match="is empty: its first line must name"):
        read_texts(file, "word")
    file.write_text("words\ntea\n")
    with pytest.raises(ArgumentError, match="column must be one of words, got 'word'"):
        read_texts(file, "word")
    assert read_texts(file, "words") == ["tea"]
