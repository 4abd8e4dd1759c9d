import stat
from types import SimpleNamespace

import pytest

from sstq.client.sent import SentRecord


def test_a_file_is_sent_once(tmp_path):
    one, two = tmp_path / "one.npy", tmp_path / "two.npy"
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    rooms = SimpleNamespace(name="rooms", digest="ab")
    record = SentRecord(rooms, "key", tmp_path / "state")
    record.add([one])
    assert stat.S_IMODE(record.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.path.parent.stat().st_mode) == 0o700
    before = record.path.read_bytes()
    copy = tmp_path / "copy.npy"
    copy.write_bytes(b"1")
    for files in ([one], [two, one], [copy]):
        with pytest.raises(ValueError, match=r"sent to this campaign before.*--again"):
            record.add(files)
    assert record.path.read_bytes() == before
    record.add([one], again=True)
    record.add([two])
    SentRecord(rooms, "another key", tmp_path / "state").add([one])
    SentRecord(SimpleNamespace(name="rooms", digest="cd"), "key", tmp_path / "state").add([one])
