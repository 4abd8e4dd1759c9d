"""Browser libraries are committed unmodified, with their licence."""

import json

import pytest

from tests.vendored import RECORDS, unlike_their_record


@pytest.mark.parametrize(
    "record", RECORDS, ids=lambda record: json.loads(record.read_text())["package"]
)
def test_vendored_files_have_the_recorded_hashes(record):
    assert any("LICENSE" in name for name in json.loads(record.read_text())["files"])
    assert unlike_their_record(record) == []


def test_a_changed_file_is_noticed(tmp_path):
    record = tmp_path / "vendored.json"
    record.write_text(RECORDS[0].read_text())
    for name in json.loads(record.read_text())["files"]:
        (tmp_path / name).write_bytes((RECORDS[0].parent / name).read_bytes() + b" ")
    assert unlike_their_record(record) == list(json.loads(record.read_text())["files"])
