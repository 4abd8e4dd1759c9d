import math

import numpy as np
import pytest

from paper.baselines.clean import Clean
from tests.contract.cases import reread


def aggregated(mechanism, *batches):
    aggregator = mechanism.aggregator()
    for batch in batches:
        aggregator.update(mechanism.encode(batch))
    return aggregator


@pytest.mark.parametrize("dim", [1, 2, 5, 1000])
def test_estimates_are_the_clipped_vectors(dim, seed):
    rng = np.random.default_rng(seed)
    mechanism = Clean(dim=dim, clip=0.3)
    x = rng.standard_normal((20, dim)) * np.logspace(-30, 30, 20)[:, None]
    x[7] = 0
    messages = mechanism.encode(x)
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    clipped = x * np.minimum(1, 0.3 / np.where(norms > 0, norms, 1))
    np.testing.assert_allclose(
        mechanism.decode(messages), clipped, rtol=3e-7, atol=1e-40
    )


def test_expected_error_is_that_of_clipping_alone():
    mechanism = Clean(dim=3, clip=2.0)
    inside = mechanism.expected_mse(np.array([0.1, -0.2, 0.3]), clients=5)
    assert inside.variance == 0
    assert inside.bias2 < 1e-14
    assert mechanism.expected_mse(np.array([3.0, 0.0, 4.0])).bias2 == pytest.approx(
        9.0, rel=1e-6
    )


def test_json_holds_no_infinity():
    mechanism = Clean(dim=4, clip=0.5)
    assert (
        mechanism.to_json()
        == '{"clip":0.5,"dim":4,"format":"sstq-mechanism","mechanism":"clean","version":2}'
    )
    assert reread(mechanism) == mechanism
    for epsilon in (math.inf, 1.0, None):
        with pytest.raises(ValueError, match=r"epsilon|Infinity"):
            reread(mechanism, epsilon=epsilon)


def test_mean_and_error_are_those_of_numpy_however_small_the_vectors(seed):
    # Updates 100,000 times shorter than clip: the fixed point has to keep their squares too.
    mechanism = Clean(dim=20_000, clip=1.0)
    x = (1e-5 / 20_000**0.5) * np.random.default_rng(seed).standard_normal((30, 20_000))
    estimate = aggregated(mechanism, x).mean()
    single = x.astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(
        estimate.value, single.mean(axis=0), rtol=1e-6, atol=1e-15
    )
    np.testing.assert_allclose(
        estimate.stderr, single.std(axis=0, ddof=1) / 30**0.5, rtol=1e-3
    )
    assert estimate.count == 30
