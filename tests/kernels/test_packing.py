"""Bit packing against Python's big integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sstq.kernels import pack_bits, unpack_bits


@st.composite
def streams(draw):
    width = draw(st.integers(1, 64))
    values = draw(st.lists(st.integers(0, 2**width - 1), max_size=70))
    return width, values


def big_integer_bytes(values, width):
    stream = sum(value << (i * width) for i, value in enumerate(values))
    return stream.to_bytes(-(-len(values) * width // 8), "little")


@given(streams())
def test_against_big_integers(stream):
    width, values = stream
    packed = pack_bits(np.array(values, np.uint64), width)
    assert packed.dtype == np.uint8
    assert packed.tobytes() == big_integer_bytes(values, width)
    unpacked = unpack_bits(packed, len(values), width)
    assert unpacked.dtype == np.uint64
    assert unpacked.tolist() == values


@pytest.mark.parametrize("width", range(1, 65))
def test_extreme_values_of_every_width(width):
    values = [2**width - 1, 0, 1, 2 ** (width - 1), 2**width - 1] * 13
    packed = pack_bits(np.array(values, np.uint64), width)
    assert packed.tobytes() == big_integer_bytes(values, width)
    assert unpack_bits(packed, len(values), width).tolist() == values


def test_reads_read_only_and_strided_bytes():
    data = np.frombuffer(bytes([33, 3]), np.uint8)
    assert unpack_bits(data, 3, 4).tolist() == [1, 2, 3]
    assert unpack_bits(np.array([33, 0, 3, 0], np.uint8)[::2], 3, 4).tolist() == [1, 2, 3]


def test_refuses():
    values = np.array([1, 16], np.uint64)
    with pytest.raises(ValueError, match=r"below 2\^4, got 16"):
        pack_bits(values, 4)
    with pytest.raises(ValueError, match="from 1 to 64, got 65"):
        pack_bits(values, 65)
    with pytest.raises(ValueError, match="take 2 bytes, but data has 3"):
        unpack_bits(np.zeros(3, np.uint8), 3, 4)
