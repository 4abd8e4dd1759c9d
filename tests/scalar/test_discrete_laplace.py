from fractions import Fraction

import numpy as np
import pytest

from sstq.exactness import TOTAL, exp_lower
from sstq.scalar.codebooks import Codebook, optimized_codebook, uniform_codebook
from sstq.scalar.metric_aware import discrete_laplace_channel


def largest(channel):
    """The largest ratio in a column, by rational arithmetic over all pairs of rows."""
    columns = [[int(w) for w in column if w] for column in channel.matrix.T]
    return max(Fraction(max(column), min(column)) for column in columns if column)


@pytest.mark.parametrize("bits", [1, 2, 4, 6])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0])
def test_uniform_codebooks_spend_exactly_epsilon(bits, epsilon):
    channel = discrete_laplace_channel(uniform_codebook(bits), epsilon)
    assert all(sum(map(int, row)) == TOTAL for row in channel.matrix)
    assert largest(channel) <= exp_lower(epsilon)
    assert float(largest(channel)) == pytest.approx(np.exp(epsilon), rel=1e-9)
    values = channel_values = uniform_codebook(bits).values
    law = np.exp(-epsilon * np.abs(values - channel_values[:, None]) / 2)
    np.testing.assert_allclose(channel.probabilities(), law / law.sum(axis=1, keepdims=True), rtol=1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 8.0])
@pytest.mark.parametrize(
    "codebook",
    [Codebook("mine", [-1.0, 0.9, 0.95, 1.0]), Codebook("mine", [-1, -0.01, 0, 1]), optimized_codebook(5, 3.0)],
    ids=["one-sided", "middle", "repeated"],
)
def test_other_codebooks_keep_to_epsilon(codebook, epsilon):
    channel = discrete_laplace_channel(codebook, epsilon)
    assert all(sum(map(int, row)) == TOTAL for row in channel.matrix)
    assert 0.99 * epsilon < np.log(float(largest(channel)))
    assert largest(channel) <= exp_lower(epsilon)
