import os
import stat
import struct
import sys
import zlib
from itertools import pairwise

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sstq
from paper.baselines import Clean
from sstq.messages import files
from sstq.messages.batch import Messages
from sstq.messages.files import (
    block_messages,
    open_messages,
    read_messages,
    write_messages,
)
from tests.contract.cases import build

PRIVATE = sstq.SSTQ(dim=20, epsilon=2.0, bits=3)
OTHER = sstq.SSTQ(dim=20, epsilon=2.0, bits=3, frame_seed=1)


def sample(mechanism, count=100, **options):
    x = np.random.default_rng(0).standard_normal((count, 20))
    return mechanism.encode(x, **options)


def describe_messages(path):
    with open_messages(path) as opened:
        return opened.info


def read_all(path, mechanism):
    return Messages.concatenate(list(read_messages(path, mechanism)))


def same(a, b):
    return (
        a.to_bytes() == b.to_bytes()
        and a.digest == b.digest
        and a.simulated == b.simulated
    )


@pytest.mark.parametrize("suffix", [".sstq", ".parquet"])
@pytest.mark.parametrize("rng", [None, 3])
def test_round_trip(tmp_path, suffix, rng):
    mechanism = PRIVATE
    path = tmp_path / f"messages{suffix}"
    messages = sample(mechanism, rng=rng)
    assert write_messages(path, messages) == 100
    assert same(read_all(path, mechanism), messages)
    info = describe_messages(path)
    assert (info.count, info.message_bits, info.digest) == (
        100,
        mechanism.message_bits,
        mechanism.digest(),
    )
    assert info.simulated == (rng is not None)
    with pytest.raises(ValueError, match="another mechanism"):
        read_all(path, OTHER)


def test_many_batches_become_whole_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("sstq.messages.files.BLOCK_MESSAGES", 32)
    messages = sample(PRIVATE, rng=1)
    path = tmp_path / "messages.sstq"
    for cuts, blocks in (
        ([0, 1, 31, 33, 33, 97, 100], [32, 32, 32, 4]),
        ([0, 64], [32, 32]),
    ):
        write_messages(path, (messages[a:b] for a, b in pairwise(cuts)))
        assert [len(batch) for batch in read_messages(path, PRIVATE)] == blocks
        assert same(read_all(path, PRIVATE), messages[: cuts[-1]])


def test_layout_of_the_header(tmp_path):
    # The format is documented byte by byte; other programs rely on it.
    path = tmp_path / "messages.sstq"
    messages = sample(PRIVATE, rng=1)
    write_messages(path, messages)
    raw = path.read_bytes()
    assert raw[:8] == b"\x8fSSTQ\r\n\x1a"
    assert int.from_bytes(raw[8:10], "little") == 1
    assert int.from_bytes(raw[10:12], "little") == 1  # simulated
    assert int.from_bytes(raw[12:16], "little") == PRIVATE.message_bits
    assert int.from_bytes(raw[16:24], "little") == 100
    assert raw[24:56].hex() == PRIVATE.digest()
    assert raw[56:72].hex() == describe_messages(path).file_id
    assert raw[80:-4] == messages.to_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: b"", "unknown header"),
        (lambda raw: b"index,code\n1,2\n", "unknown header"),
        (
            lambda raw: raw[:8] + b"\2" + raw[9:],
            "has version 2 of the message format; this library reads version 1",
        ),
        (lambda raw: raw + b"\0", "too long"),
    ],
)
def test_other_files_are_refused(tmp_path, change, message):
    path = tmp_path / "messages.sstq"
    write_messages(path, sample(PRIVATE))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=message):
        describe_messages(path)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".sstq", ".parquet"])
def test_every_truncation_is_refused(tmp_path, suffix):
    path = tmp_path / f"messages{suffix}"
    write_messages(path, sample(PRIVATE, 40))
    raw = path.read_bytes()
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        with pytest.raises(ValueError, match=str(path)):
            read_all(path, PRIVATE)


@pytest.mark.slow
def test_every_flipped_bit_is_refused(tmp_path):
    path = tmp_path / "messages.sstq"
    write_messages(path, sample(PRIVATE, 20))
    raw = path.read_bytes()
    for bit in range(8 * len(raw)):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"messages\.sstq"):
            read_all(path, PRIVATE)


def test_damage_is_located(tmp_path, monkeypatch):
    monkeypatch.setattr("sstq.messages.files.BLOCK_MESSAGES", 32)
    path = tmp_path / "messages.sstq"
    write_messages(path, sample(PRIVATE))
    raw = bytearray(path.read_bytes())
    block = 32 * PRIVATE.message_bits // 8 + 4
    raw[80 + 2 * block + 1] ^= 4
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=f"block 2 at byte {80 + 2 * block}: damaged"):
        read_all(path, PRIVATE)


@pytest.mark.slow
@given(st.integers(0, 10**9), st.integers(0, 7))
def test_flipped_bits_of_parquet_never_change_messages(tmp_path_factory, place, bit):
    path = tmp_path_factory.mktemp("flips") / "messages.parquet"
    messages = sample(PRIVATE, 50, rng=5)
    write_messages(path, messages)
    raw = bytearray(path.read_bytes())
    raw[place % len(raw)] ^= 1 << bit
    path.write_bytes(raw)
    try:
        again = read_all(path, PRIVATE)
    except ValueError:
        return
    # Some bits of a Parquet footer (statistics, the writer's name) do not matter; nothing of the messages may change.
    assert same(again, messages)


@given(st.binary(max_size=300))
def test_any_bytes_are_messages_or_a_value_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "messages.sstq"
    path.write_bytes(files.MAGIC + data)
    with pytest.raises(ValueError, match=r"messages\.sstq"):
        read_all(path, PRIVATE)


def forged_header(count, block, bits=PRIVATE.message_bits):
    fields = (
        files.MAGIC,
        1,
        0,
        bits,
        count,
        bytes.fromhex(PRIVATE.digest()),
        bytes(16),
        block,
    )
    header = struct.pack("<8sHHIQ32s16sI", *fields)
    return header + struct.pack("<I", zlib.crc32(header))


@pytest.mark.parametrize(
    ("count", "block", "bits", "message"),
    [
        (2**63, 1, PRIVATE.message_bits, "truncated"),
        (2**64 - 1, 1, 2**32 - 1, "truncated"),
        (2**64 - 1, 2**20, 1, "truncated"),
        (1, 2**20 + 1, 1, "invalid header"),
        (1, 2**12, 2**16, "invalid header"),
        (1, 0, 1, "invalid header"),
        (1, 1, 0, "invalid header"),
    ],
)
def test_numbers_of_a_header_cost_nothing(tmp_path, count, block, bits, message):
    # A checksum keeps nobody from stating 2^63 messages in 80 bytes: nothing may be counted or reserved for them.
    path = tmp_path / "messages.sstq"
    path.write_bytes(forged_header(count, block, bits))
    for read in (
        describe_messages,
        lambda path: read_all(path, PRIVATE),
        PRIVATE.aggregator().update_from_file,
    ):
        with pytest.raises(ValueError, match=message):
            read(path)


def parquet_with(path, columns, mechanism=PRIVATE):
    write_messages(path, sample(mechanism))
    metadata = pyarrow.parquet.read_schema(path).metadata
    pyarrow.parquet.write_table(
        pyarrow.table(columns).replace_schema_metadata(metadata), path
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"code": [1], "place": [0]}, "no column index"),
        (
            {"code": [8], "index": [0]},
            r"messages.parquet, message 0: code must be in \[0, 8\), got 8",
        ),
        ({"code": [1], "index": [64]}, r"index must be in \[0, 64\), got 64"),
        ({"code": [1], "index": [-1]}, r"index must be in \[0, 64\), got -1"),
        ({"code": [None], "index": [1]}, "without nulls"),
        ({"code": [1.0], "index": [1]}, "must hold integers"),
    ],
)
def test_bad_parquet_columns_are_refused(tmp_path, columns, message):
    path = tmp_path / "messages.parquet"
    parquet_with(path, columns)
    with pytest.raises(ValueError, match=message):
        read_all(path, PRIVATE)


@pytest.mark.parametrize("bits", ["0", "٣", "9" * 5000])
def test_impossible_bits_of_parquet_are_refused(tmp_path, bits):
    path = tmp_path / "messages.parquet"
    write_messages(path, sample(PRIVATE))
    table = pyarrow.parquet.read_table(path)
    metadata = table.schema.metadata | {b"sstq.bits": bits.encode()}
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), path)
    with pytest.raises(ValueError, match="invalid metadata"):
        describe_messages(path)


def test_how_much_is_read_at_once_does_not_follow_from_what_a_file_says(
    tmp_path, monkeypatch
):
    path = tmp_path / "messages.parquet"
    wide = Clean(dim=50_000)
    write_messages(path, wide.encode(np.zeros((2, 50_000)), rng=1))
    table = pyarrow.parquet.read_table(path)
    metadata = table.schema.metadata | {b"sstq.bits": b"1"}
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), path)
    asked = []
    original = pyarrow.parquet.ParquetFile.iter_batches

    def iter_batches(file, batch_size, **options):
        asked.append(batch_size)
        return original(file, batch_size, **options)

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", iter_batches)
    assert len(read_all(path, wide)) == 2
    assert asked == [block_messages(32 * 50_000)]


def test_parquet_of_other_types_is_refused_unread(tmp_path, monkeypatch):
    def iter_batches(*_arguments, **_options):
        raise AssertionError("columns were read before they were checked")

    path = tmp_path / "messages.parquet"
    write_messages(path, sample(PRIVATE))
    table = pyarrow.parquet.read_table(path)
    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", iter_batches)
    lists = pyarrow.array([[1] * 50] * 100, pyarrow.list_(pyarrow.uint8(), 50))
    for column in (lists, pyarrow.array(["1"] * 100)):
        wrong = table.set_column(table.schema.get_field_index("code"), "code", column)
        pyarrow.parquet.write_table(
            wrong.replace_schema_metadata(table.schema.metadata), path
        )
        with pytest.raises(ValueError, match="column code must hold integers"):
            read_all(path, PRIVATE)


@pytest.mark.parametrize("suffix", [".sstq", ".parquet"])
def test_a_failed_write_leaves_the_old_file(tmp_path, suffix):
    path = tmp_path / f"messages{suffix}"
    write_messages(path, sample(PRIVATE, rng=1))
    before = path.read_bytes()

    def failing():
        yield sample(PRIVATE)
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        write_messages(path, failing())
    with pytest.raises(ValueError, match=r"one mechanism|different mechanisms"):
        write_messages(path, [sample(PRIVATE), sample(OTHER)])
    with pytest.raises(ValueError, match="either all simulated or none"):
        write_messages(path, [sample(PRIVATE), sample(PRIVATE, rng=1)])
    with pytest.raises(ValueError, match="at least one message"):
        write_messages(path, [])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'sstq\[data\]'"):
        write_messages(tmp_path / "messages.parquet", sample(PRIVATE))


@pytest.mark.parametrize("suffix", [".sstq", ".parquet"])
@pytest.mark.parametrize("case", ["sstq"])
def test_private_messages_and_states_may_be_read_by_anybody(tmp_path, case, suffix):
    mechanism = build(case)
    messages = mechanism.encode(np.ones((3, mechanism.dim)))
    write_messages(tmp_path / f"m{suffix}", [messages[:2], messages[2:]])
    aggregator = mechanism.aggregator().update(messages)
    aggregator.save(tmp_path / "state")
    again = read_all(tmp_path / f"m{suffix}", mechanism)
    write_messages(tmp_path / f"again{suffix}", again)
    umask = os.umask(0)
    os.umask(umask)
    expected = 0o666 & ~umask
    for name in (f"m{suffix}", f"again{suffix}", "state"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == expected
