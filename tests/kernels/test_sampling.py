"""Table sampling against np.searchsorted, message by message."""

import numpy as np
import pytest

from sstq.kernels import sample_table

TOTAL = 2**62


def random_table(rng, inputs, outputs):
    cuts = np.sort(rng.integers(TOTAL + 1, size=(inputs, outputs - 1), dtype=np.uint64), axis=1)
    return np.concatenate([cuts, np.full((inputs, 1), TOTAL, np.uint64)], axis=1)


@pytest.mark.parametrize("outputs", [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 100, 255, 256, 257])
def test_against_searchsorted(outputs, seed):
    rng = np.random.default_rng(seed)
    table = random_table(rng, 5, outputs)
    tokens = rng.integers(5, size=2000)
    words = rng.integers(TOTAL, size=2000, dtype=np.uint64)
    # Half of the words lie exactly on an edge or beside it, where ≤ and < differ.
    edges = table[tokens[::2], rng.integers(outputs, size=1000)]
    words[::2] = np.clip(edges.astype(np.int64) - rng.integers(2, size=1000), 0, TOTAL - 1)
    codes = sample_table(tokens, words, table)
    expected = [np.searchsorted(table[token], word, side="right") for token, word in zip(tokens, words, strict=True)]
    assert codes.dtype == np.int64
    np.testing.assert_array_equal(codes, expected)


def test_columns_of_weight_zero_are_never_sent():
    table = np.cumsum([[0, TOTAL // 2, 0, 0, TOTAL // 2, 0]], axis=1).astype(np.uint64)
    words = np.array([0, TOTAL // 2 - 1, TOTAL // 2, TOTAL - 1], np.uint64)
    assert sample_table(np.zeros(4, np.int64), words, table).tolist() == [1, 1, 4, 4]


def test_refuses():
    table = np.array([[TOTAL // 2, TOTAL]], np.uint64)
    token, word = np.array([0]), np.array([7], np.uint64)
    with pytest.raises(ValueError, match=r"tokens must lie in \[0, 1\), got 1"):
        sample_table(token + 1, word, table)
    with pytest.raises(ValueError, match="words must lie"):
        sample_table(token, np.array([TOTAL], np.uint64), table)
    with pytest.raises(ValueError, match="last entry"):
        sample_table(token, word, table[:, :1].copy())
