import math
import tracemalloc

import numpy as np
import pytest
from scipy.stats import kstest

from sstq.baselines.projections import gaussians
from sstq.baselines.projunit import ProjUnit
from sstq.randomness import streams
from sstq.testing import accuracy


def make(dim=12, epsilon=3.0, projected=5, seed=0):
    return ProjUnit(dim, epsilon, projected=projected, seed=seed)


def matrix_of(mechanism, number):
    """The matrix W of a number, (k, d), from what the server does with basis vectors."""
    return mechanism.projection.lift(
        np.eye(mechanism.projected, dtype=np.float32),
        np.full(mechanism.projected, number),
    )


@pytest.mark.slow
def test_uniform_projections_are_caught(seed, monkeypatch):
    """Measured: a published ProjUnit draws uniform numbers for Gaussian ones: alignment 3.17 on the constant vector.

    Here they are uniform in (0, √3), of second moment 1, and ‖Wx‖ at d = 12 is √(k·(1/4 + 12·3/4)).
    """
    mechanism = make()
    x = np.full(12, 12**-0.5)
    accuracy.check_estimates(mechanism, seed, ("constant",))

    def uniforms(words):
        halves = np.stack(
            [words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)], axis=-1
        )
        return (
            (halves * (math.sqrt(3) / 2**32))
            .astype(np.float32)
            .reshape(*words.shape[:-1], -1)
        )

    monkeypatch.setattr("sstq.baselines.projections.gaussians", uniforms)
    lengths = np.array(
        [np.linalg.norm(matrix_of(mechanism, number) @ x) for number in range(500)]
    )
    assert lengths.mean() / mechanism.alignment == pytest.approx(
        (5 * 9.25) ** 0.5 / mechanism.alignment, rel=0.02
    )
    assert lengths.mean() / mechanism.alignment > 3
    with pytest.raises(AssertionError, match="not the stated one"):
        accuracy.check_estimates(mechanism, seed, ("constant",))


def test_client_and_server_have_the_same_matrix():
    mechanism = make(7, projected=4, seed=5)
    matrix = matrix_of(mechanism, 11)
    directions = mechanism.projection.directions(np.eye(7), np.full(7, 11))
    np.testing.assert_allclose(
        directions.T, matrix / np.linalg.norm(matrix, axis=0), atol=1e-6
    )
    assert np.abs(matrix_of(mechanism, 12) - matrix).max() > 0.05


def test_a_million_dimensions_in_little_memory():
    mechanism = ProjUnit(10**6, 3.0, projected=4)
    x = np.ones(10**6, dtype=np.float32)
    mechanism.encode(x)
    tracemalloc.start()
    messages = mechanism.encode(x)
    estimate = mechanism.decode(messages)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.all(np.isfinite(estimate))
    # The vector itself is 4 MB, and 8 MB in double precision; the 16 MB of the Gaussian matrix are made row by row.
    assert peak < 60e6


# The matrices.


def test_the_matrices_are_those_of_the_documented_streams():
    numbers = np.array([5, 2**32 - 1], dtype=np.uint64)
    mechanism = make(3, projected=2, seed=9)
    for number, seed in zip(
        numbers, streams.words_of(9, "project", numbers), strict=True
    ):
        matrix = gaussians(streams.words(int(seed), "g0", 3))[:6].reshape(2, 3)
        np.testing.assert_allclose(matrix_of(mechanism, number), matrix, rtol=1e-6)


def test_a_message_carries_the_number_of_its_matrix(seed):
    """The numbers are uniform below 2^32 whatever the vector is, and decoding needs nothing else."""
    mechanism = make()
    first, second = (
        mechanism.encode(np.tile(row, (2000, 1)), rng=seed) for row in np.eye(12)[:2]
    )
    np.testing.assert_array_equal(first.column("matrix"), second.column("matrix"))
    # Of 2,000 numbers below 2^32 two are equal with a probability of 5e-4: twenty would be fewer than 1e-40.
    assert len(np.unique(first.column("matrix"))) > 1980
    assert kstest(first.column("matrix") / 2**32, "uniform").pvalue > 1e-9
    again = mechanism.messages_from_bytes(first.to_bytes(), 2000)
    np.testing.assert_array_equal(mechanism.decode(again), mechanism.decode(first))
    assert mechanism.message_bits == 32 * 5 + 32


def test_matrices_in_several_blocks_are_the_same_for_any_batch(monkeypatch):
    monkeypatch.setattr("sstq.baselines.projections._BLOCK_ENTRIES", 30)
    mechanism = make(10, projected=8, seed=1)
    v = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
    ids = np.array([4, 9, 2, 7, 1])
    whole = mechanism.projection.lift(v, ids)
    for i in range(5):
        np.testing.assert_array_equal(
            mechanism.projection.lift(v[i : i + 1], ids[i : i + 1])[0], whole[i]
        )
    matrix = matrix_of(mechanism, 4)
    np.testing.assert_allclose(v[0] @ matrix, whole[0], atol=1e-5)
    # Three blocks, each with a stream of its own: no two rows are equal.
    assert (
        np.min(np.abs(matrix[:, None] - matrix[None]).sum(axis=2) + 99 * np.eye(8))
        > 0.1
    )


def test_a_projection_that_misses_the_vector_divides_by_nothing(monkeypatch, seed):
    mechanism = make()
    monkeypatch.setattr(
        "sstq.baselines.projections.gaussians",
        lambda words: np.zeros((len(words), 60), dtype=np.float32),
    )
    vectors = mechanism.encode(np.eye(12), rng=seed).column("vector")
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
