import stat
from types import SimpleNamespace

import pytest

from sstq.client.sent import record_sent


def test_a_file_is_sent_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    one, two, copy = (tmp_path / f"{name}.npy" for name in ("one", "two", "copy"))
    for file, content in ((one, b"1"), (two, b"2"), (copy, b"1")):
        file.write_bytes(content)
    rooms, other = (SimpleNamespace(name="rooms", digest=digest) for digest in ("ab", "cd"))
    record_sent(rooms, "key", [one])
    (record,) = (tmp_path / "state" / "sstq").iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (record, record.parent)] == [0o600, 0o700]
    before = record.read_bytes()
    for files in ([one], [two, one], [copy]):
        with pytest.raises(ValueError, match=r"again must be set .* sent to this campaign before"):
            record_sent(rooms, "key", files)
    assert record.read_bytes() == before
    record_sent(rooms, "key", [one], again=True)
    record_sent(rooms, "key", [two])
    record_sent(rooms, "another key", [one])
    record_sent(other, "key", [one])
