import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sstq
from sstq.messages.batch import Messages
from sstq.messages.layouts import Field, FloatField, Layout

MECHANISM = sstq.SSTQ(dim=20, epsilon=2.0, bits=3, frame="fourier", frame_size=50)


def big_integer_packing(layout, columns):
    """The specification with Python's integers."""
    stream = 0
    for i, fields in enumerate(zip(*columns, strict=True)):
        message = 0
        shift = 0
        for field, values in zip(layout.fields, fields, strict=True):
            for value in np.atleast_1d(values).tolist():
                message |= value << shift
                shift += field.bits
        stream |= message << (i * layout.message_bits)
    return stream.to_bytes(-(-len(columns[0]) * layout.message_bits // 8), "little")


@given(st.data())
def test_packing_is_the_specification(data):
    # Narrow messages, wide ones, whole bytes, several numbers per field, and numbers that lie in nine bytes.
    widths = data.draw(
        st.lists(
            st.sampled_from([0, 1, 3, 8, 13, 16, 21, 40, 61, 64]),
            min_size=1,
            max_size=4,
        ).filter(any)
    )
    fields = tuple(
        Field(
            f"f{i}",
            data.draw(st.integers((1 << bits) // 2 + 1, 1 << bits)),
            data.draw(st.sampled_from([1, 2, 3, 17])),
        )
        for i, bits in enumerate(widths)
    )
    layout = Layout(fields)
    count = data.draw(st.integers(0, 20))

    def draw_column(field):
        entries = st.lists(
            st.integers(0, field.limit - 1),
            min_size=count * field.count,
            max_size=count * field.count,
        )
        values = np.array(data.draw(entries), dtype=field.dtype)
        return values if field.count == 1 else values.reshape(count, field.count)

    columns = tuple(draw_column(field) for field in fields)
    raw = layout.pack(columns)
    assert raw == big_integer_packing(layout, columns)
    for column, again in zip(columns, layout.unpack(raw, count), strict=True):
        np.testing.assert_array_equal(again, column)
        assert again.dtype == column.dtype


@pytest.mark.parametrize(
    "widths", [(13, 4), (3,), (56,), (57,), (58,), (16, 64), (64, 13)]
)
@pytest.mark.parametrize("count", [16, 17, 100])
def test_blocks_join_without_a_seam(widths, count, monkeypatch, seed):
    monkeypatch.setattr("sstq.messages.layouts._NUMBERS_PER_BLOCK", 16)
    layout = Layout(tuple(Field(f"f{i}", 1 << bits) for i, bits in enumerate(widths)))
    rng = np.random.default_rng(seed)
    columns = tuple(
        rng.integers(0, field.limit, count, dtype=field.dtype)
        for field in layout.fields
    )
    raw = layout.pack(columns)
    assert raw == big_integer_packing(layout, columns)
    for column, again in zip(columns, layout.unpack(raw, count), strict=True):
        np.testing.assert_array_equal(again, column)


def test_a_bad_message_of_a_later_block_is_named_by_its_number(monkeypatch):
    monkeypatch.setattr("sstq.messages.layouts._NUMBERS_PER_BLOCK", 16)
    codes = np.zeros(50, np.uint8)
    codes[41] = 7
    raw = Layout((Field("code", 8),)).pack((codes,))
    with pytest.raises(
        ValueError, match=r"message 41: code must be in \[0, 5\), got 7"
    ):
        Layout((Field("code", 5),)).unpack(raw, 50)


def test_floats_keep_their_bits():
    layout = Layout((FloatField("x", count=3), Field("tail", 32)))
    numbers = np.array([[0.1, -0.0, 1e-45], [3e38, -1.5, 7.0]], dtype=np.float32)
    raw = layout.pack((numbers, np.array([3, 31], dtype=np.uint8)))
    assert len(raw) == -(-2 * 101 // 8)
    assert layout.unpack(raw, 2)[0].tobytes() == numbers.tobytes()
    numbers[1, 2] = np.nan
    raw = layout.pack((numbers, np.array([3, 31], dtype=np.uint8)))
    with pytest.raises(ValueError, match="message 1: x must be finite, got nan"):
        layout.unpack(raw, 2)


@pytest.mark.parametrize(
    ("dim", "bits", "expected"), [(25_450, 4, 20), (98_666, 4, 22), (1, 1, 3)]
)
def test_message_bits(dim, bits, expected):
    assert sstq.SSTQ(dim=dim, epsilon=3.0, bits=bits).message_bits == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw[:-1], "truncated: 7 messages of 9 bits take 8 bytes, got 7"),
        (lambda raw: raw + b"\0", "too long: 7 messages of 9 bits take 8 bytes, got 9"),
        (
            lambda raw: raw[:-1] + bytes([raw[-1] | 0x80]),
            r"last 1 bits of the last byte \(byte 7\) must be zero",
        ),
        (
            lambda raw: b"\xff" * 7 + b"\x7f",
            r"message 0: index must be in \[0, 50\), got 63",
        ),
    ],
)
def test_malformed_bytes_are_refused(change, message):
    raw = MECHANISM.encode(np.ones((7, 20)), rng=1).to_bytes()
    with pytest.raises(ValueError, match=message):
        MECHANISM.messages_from_bytes(change(raw), 7)


@pytest.mark.parametrize("count", [-1, 1.5, "7", None, True])
def test_malformed_counts_are_refused(count):
    with pytest.raises(ValueError, match="count must be"):
        MECHANISM.messages_from_bytes(b"", count)


@given(st.binary(max_size=40), st.integers(0, 40))
def test_any_bytes_are_messages_or_a_value_error(raw, count):
    try:
        messages = MECHANISM.messages_from_bytes(raw, count)
    except ValueError:
        return
    assert messages.to_bytes() == raw


def test_codes_that_are_never_sent_are_refused():
    # The optimized codebook repeats 0, so that cells of the metric-aware channel are empty.
    mechanism = sstq.SSTQ(
        dim=20, epsilon=2.0, bits=6, channel="metric-aware", codebook="optimized"
    )
    unused = int(np.flatnonzero(~mechanism.channel.used)[0])
    raw = Layout(mechanism.layout.fields).pack(
        (np.array([unused], np.uint8), np.array([0], np.uint8))
    )
    with pytest.raises(ValueError, match=f"code {unused} is never sent"):
        mechanism.messages_from_bytes(raw, 1)


def test_slices_and_joins():
    messages = MECHANISM.encode(np.ones((10, 20)), rng=1)
    joined = Messages.concatenate([messages[:4], messages[4:]])
    assert joined.to_bytes() == messages.to_bytes()
    assert joined.simulated
    other = sstq.SSTQ(
        dim=20, epsilon=2.5, bits=3, frame="fourier", frame_size=50
    ).encode(np.ones((1, 20)))
    with pytest.raises(ValueError, match="different mechanisms"):
        Messages.concatenate([messages, other])
    with pytest.raises(TypeError, match="must be a slice"):
        messages[0]
    with pytest.raises(ValueError, match="batches must not be empty"):
        Messages.concatenate([])
    with pytest.raises(ValueError, match="must be bytes, got str"):
        MECHANISM.messages_from_bytes("text", 1)
    with pytest.raises(
        ValueError, match="name must be one of code, index, got 'token'"
    ):
        messages.column("token")


def test_shuffled_messages_are_the_same_ones_slot_by_slot():
    mechanism = sstq.FrameUnit(dim=8, epsilon=2.0, messages=3)
    sent = mechanism.encode(np.eye(8)[np.arange(500) % 8])
    mixed = sent.shuffled(3)
    rows = mixed.column("row").reshape(3, -1)
    before = sent.column("row").reshape(3, -1)
    np.testing.assert_array_equal(np.sort(rows, axis=1), np.sort(before, axis=1))
    # A slot stays as it was with probability below 10⁻⁵⁰⁰: its rows are of hundreds of kinds.
    assert np.all(np.any(rows != before, axis=1))
    np.testing.assert_array_equal(
        sent.shuffled(3, rng=5).column("row"), sent.shuffled(3, rng=5).column("row")
    )
    with pytest.raises(ValueError, match="slots must divide the 1500 messages, got 7"):
        sent.shuffled(7)


def test_every_order_is_as_likely(seed):
    """Of 6,000 shuffles of three messages each order has 1,000 ± 5.5 standard deviations: 1 in 4 million fails."""
    mechanism = sstq.FrameUnit(dim=2, epsilon=20.0)
    sent = mechanism.messages_from_columns(
        (np.array([0, 1, 2], dtype=np.uint32),), False
    )
    rng = np.random.default_rng(seed)
    orders = [tuple(sent.shuffled(1, rng).column("row").tolist()) for _ in range(6000)]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 6
    assert (
        max(abs(count - 1000) for count in counts) < 5.5 * (6000 * 1 / 6 * 5 / 6) ** 0.5
    )


def test_the_limit_of_a_field_is_no_value_of_it():
    layout = Layout((Field("code", 5),))
    assert layout.unpack(bytes([4]), 1)[0].tolist() == [4]
    with pytest.raises(ValueError, match=r"message 0: code must be in \[0, 5\), got 5"):
        layout.unpack(bytes([5]), 1)
