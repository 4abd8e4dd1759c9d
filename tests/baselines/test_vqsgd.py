from fractions import Fraction

import numpy as np
import pytest

from sstq.baselines import vqsgd
from sstq.baselines.vqsgd import VqSGD
from sstq.exactness import TOTAL
from sstq.inputs.trial_vectors import structured_vectors
from tests.scripted import ScriptedBits


def some_vectors(dim, seed=0):
    """Unit vectors of all kinds, shorter ones and zero."""
    rows = np.concatenate(
        list(structured_vectors(dim, np.random.default_rng(seed)).values())
    )
    return np.concatenate([rows, -rows, 0.3 * rows[:3], np.zeros((1, dim))])


def output_distribution(mechanism, x, which, spread):
    """The exact distribution of the message, given the two words that choose the vertex.

    The code is a step function of the last word, with steps of the two integers; both ends of every step are encoded.
    """
    own = mechanism.channel.own
    other = mechanism.channel.other
    starts = [0, *(own + i * other for i in range(mechanism.channel.size - 1))]
    ends = [*starts[1:], TOTAL]
    last = np.array(
        [[start, end - 1] for start, end in zip(starts, ends, strict=True)],
        dtype=np.uint64,
    ).reshape(-1)
    words = np.empty((len(last), 3), dtype=np.uint64)
    words[:, 0] = which
    words[:, 1] = spread
    words[:, 2] = last << np.uint64(2)
    rows = mechanism.clip * np.tile(x, (len(last), 1))
    (codes,) = mechanism.encode_rows(rows, ScriptedBits(words), None)
    np.testing.assert_array_equal(codes[::2], codes[1::2])
    distribution = [Fraction(0)] * mechanism.channel.size
    for code, start, end in zip(codes[::2], starts, ends, strict=True):
        distribution[code] += Fraction(end - start, TOTAL)
    return distribution


def vertex_probabilities(x, grid):
    """Of each vertex by name, and the mass that is spread, from a grid of words."""
    dim = len(x)
    which = (
        (np.arange(grid, dtype=np.uint64) << np.uint64(1)) + np.uint64(1)
    ) << np.uint64(64 - grid.bit_length())
    unit = np.tile(x, (grid, 1)).astype(np.float32)
    low = vqsgd._round_to_vertices(unit, which, np.zeros(grid, dtype=np.uint64))
    high = vqsgd._round_to_vertices(
        unit, which, np.full(grid, 2**64 - 1, dtype=np.uint64)
    )
    assert set(low[low != high]) <= {0}
    assert set(high[low != high]) <= {2 * dim - 1}
    spread = np.mean(low != high)
    named = np.bincount(low[low == high], minlength=2 * dim) / grid
    return named, spread


@pytest.mark.parametrize("dim", [2, 7])
def test_the_vertex_has_the_vector_as_its_mean(dim):
    grid = 1 << 14
    for x in some_vectors(dim):
        named, spread = vertex_probabilities(x, grid)
        mean = (named[0::2] - named[1::2]) * dim**0.5
        # The grid puts every step of the distribution in its place to within 1/grid.
        np.testing.assert_allclose(mean, x, atol=2 * dim**0.5 / grid)
        assert spread == pytest.approx(1 - np.abs(x).sum() / dim**0.5, abs=2 / grid)
        # Vertices on the wrong side are reached by the spread only.
        assert not np.any(named[0::2][x <= 0])
        assert not np.any(named[1::2][x >= 0])


@pytest.mark.parametrize(("dim", "bits"), [(1, 1), (3, 3), (25_450, 16), (98_666, 18)])
def test_bits_on_the_wire(dim, bits):
    # 16 and 18 bits: paper, Table "Communication cost" (Fashion-MNIST, CIFAR-10).
    assert VqSGD(dim, 3.0).message_bits == bits
