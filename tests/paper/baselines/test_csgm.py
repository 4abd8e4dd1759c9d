import hashlib
import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binom, norm

from paper.baselines.csgm import CSGM, L2CSGM
from paper.baselines.csgm_accounting import (
    ORDERS,
    Release,
    divergence,
    least_sigma,
    overflow,
    spent,
)
from sstq.accounting import gaussian_sigma
from sstq.inputs.trial_vectors import structured_vectors

BOTH = pytest.mark.parametrize("kind", [CSGM, L2CSGM])


def small(kind, **changes):
    options = {
        "dim": 16,
        "epsilon": 2.0,
        "clients": 50,
        "clip": 0.5,
        "coordinates": 20,
        "frame_seed": 3,
    }
    return kind(**options | changes)


def sampling_of(size, expected, most):
    """A release of which only the sampling matters."""
    return Release(1.0, 1e-5, 1.0, size, expected, most, 1.0)


def some_vectors(count, seed, dim=16, norm=0.5):
    x = np.random.default_rng(seed).standard_normal((count, dim))
    return x * (norm / np.linalg.norm(x, axis=1, keepdims=True))


# --- the accounting ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [2, 300])
@pytest.mark.parametrize(
    ("rate", "sigma"), [(1e-6, 3.0), (1e-3, 0.5), (0.3, 10.0), (0.999, 1.0)]
)
def test_divergence_is_the_sum_of_the_paper(rate, sigma, order):
    # Mironov, Talwar, Zhang 2019, Section 3.3, summed as it stands; its digits cancel when the divergence is tiny.
    k = np.arange(order + 1)
    terms = binom.logpmf(k, order, rate) + k * (k - 1) / (2 * sigma**2)
    expected = logsumexp(terms) / (order - 1)
    assert divergence(rate, 1.0, order, sigma) == pytest.approx(
        expected, rel=1e-8, abs=1e-13
    )


@pytest.mark.parametrize("epsilon", [0.01, 20.0])
@pytest.mark.parametrize(("rate", "weight"), [(1e-5, 4e6), (0.5, 3.0), (1.0, 1.0)])
def test_calibration_spends_the_budget_and_no_more(epsilon, rate, weight):
    delta = 1e-5
    sigma = least_sigma(rate, weight, epsilon, delta)
    # Stopping after the best order loses nothing.
    every = [
        divergence(rate, weight, a, sigma)
        + math.log1p(-1 / a)
        - math.log(delta * a) / (a - 1)
        for a in ORDERS
    ]
    assert spent(rate, weight, sigma, delta) == pytest.approx(min(every), rel=2e-9)
    assert (
        0.9999 * epsilon
        < spent(rate, weight, sigma, delta)
        <= epsilon
        < spent(rate, weight, 0.9999 * sigma, delta)
    )


@pytest.mark.parametrize(("epsilon", "loosest"), [(0.1, 1.12), (8.0, 1.10)])
def test_without_sampling_it_is_the_gaussian_mechanism(epsilon, loosest):
    # Rényi accounting is looser than the exact curve by a few per cent, never tighter.
    ratio = least_sigma(1.0, 1.0, epsilon, 1e-5) / gaussian_sigma(epsilon, 1e-5)
    assert 1 <= ratio < loosest


def test_the_bound_on_the_energy_is_the_chord_of_a_convex_function(seed):
    rng = np.random.default_rng(seed)
    for rate, sigma, order in ((0.1, 1.0, 4), (0.01, 0.5, 16), (0.7, 3.0, 2)):
        squares = rng.random(200) ** 3
        single = [divergence(rate, 1.0, order, sigma / u**0.5) for u in squares]
        assert sum(single) <= divergence(rate, squares.sum(), order, sigma) * (
            1 + 1e-12
        )


# --- the sampling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "expected"),
    [(64, 1), (1024, 16), (4096, 2048), (4096, 4000), (1 << 22, 1000)],
)
def test_the_cap_is_sound_and_tight(size, expected):
    spare = 2.0**-10 * 1e-5 * math.exp(-1)  # of δ, for the cap
    most = Release.calibrated(1.0, 1e-5, size, size, expected).most
    exceeded = binom.sf(most, size, expected / size)
    assert exceeded <= overflow(size, expected, most) <= spare
    assert exceeded > 1e-4 * spare or most == size
    assert most == expected or overflow(size, expected, most - 1) > spare


def test_drawn_sizes_and_sets_have_their_probabilities(seed):
    """10,000 draws of a set of 8 places: sizes, singles and pairs, 6 + 8 + 28 z-tests at |z| < 6 (1e-7)."""
    sampling = sampling_of(8, 3, 5)
    count = 10_000
    words = np.random.default_rng(seed).integers(
        0, 1 << 64, size=(count, 3), dtype=np.uint64
    )
    sizes = sampling.counts(words[:, 2])
    member = np.zeros((count, 8))
    for row, size in enumerate(sizes.tolist()):
        member[row, sampling.chosen(words[row, :2], size)] = 1
    np.testing.assert_array_equal(member.sum(axis=1), sizes)

    def check(observed, probability):
        assert (
            abs(observed / count - probability)
            < 6 * (probability * (1 - probability) / count) ** 0.5
        )

    probabilities = binom.pmf(np.arange(6), 8, 3 / 8) / binom.cdf(5, 8, 3 / 8)
    for k, probability in enumerate(probabilities):
        check(np.sum(sizes == k), probability)
    one, two = sampling.inclusion
    assert one == pytest.approx(probabilities @ np.arange(6) / 8, rel=1e-9)
    together = member.T @ member
    for i in range(8):
        check(together[i, i], one)
        for j in range(i):
            check(together[i, j], two)


def test_sets_are_the_same_everywhere():
    # The definition, step by step: SHAKE-128 of sixteen bytes, 32-bit numbers, their top ten bits, the distinct ones.
    seed = np.array([0x0123456789ABCDEF, 42], dtype=np.uint64)
    stream = hashlib.shake_128(
        bytes.fromhex("efcdab8967452301") + (42).to_bytes(8, "little")
    ).digest(4000)
    numbers = [
        int.from_bytes(stream[4 * i : 4 * i + 4], "little") >> 22 for i in range(1000)
    ]
    first = list(dict.fromkeys(numbers))
    sampling = sampling_of(1024, 100, 1024)
    assert sampling.chosen(seed, 100).tolist() == sorted(first[:100])
    assert sampling.chosen(seed, 1000).tolist() == sorted(
        set(range(1024)) - set(first[:24])
    )
    assert sampling.chosen(seed, 0).tolist() == []
    assert sampling.chosen(seed, 1024).tolist() == list(range(1024))


# --- privacy of the release, as implemented ---------------------------------------------------------------------------


def hockey_sticks(sampling, contribution, sigma, epsilon):
    """Both δ(ε) between the noisy sums of two coordinates with and without one client, by a grid over the plane."""
    k, probabilities = sampling._sizes
    sets = {0: [[0, 0]], 1: [[1, 0], [0, 1]], 2: [[1, 1]]}
    axis = np.linspace(-9 * sigma, 9 * sigma + 1, 1501)
    cell = (axis[1] - axis[0]) ** 2

    def density(center):
        return np.outer(
            norm.pdf(axis, center[0], sigma), norm.pdf(axis, center[1], sigma)
        )

    without = density((0, 0))
    with_client = sum(
        p / len(sets[size]) * density(np.array(member) * contribution)
        for size, p in zip(k.tolist(), probabilities, strict=True)
        for member in sets[size]
    )
    factor = math.exp(epsilon)
    return (
        cell * np.maximum(with_client - factor * without, 0).sum(),
        cell * np.maximum(without - factor * with_client, 0).sum(),
    )


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_the_release_is_private_by_integration(epsilon):
    """N = 2: the exact δ at ε, in both directions, for a client with both coordinates at the bound."""
    release = Release.calibrated(epsilon, 1e-3, 2.0, 2, 1)
    assert (
        1e-5 < max(hockey_sticks(release, np.ones(2), release.sigma, epsilon)) <= 1e-3
    )
    assert (
        max(hockey_sticks(release, np.array([1.0, -0.3]), release.sigma, epsilon))
        <= 1e-3
    )


def test_the_integration_would_notice_too_little_noise():
    release = Release.calibrated(1.0, 1e-3, 2.0, 2, 1)
    assert max(hockey_sticks(release, np.ones(2), 0.6 * release.sigma, 1.0)) > 1e-3


def test_the_cost_of_the_cap_is_at_most_what_is_charged():
    """A cap so low that it matters: δ grows by no more than e^ε·η over that of Poisson sampling."""
    for epsilon in (0.5, 2.0):
        capped = hockey_sticks(sampling_of(2, 1, 1), np.ones(2), 1.5, epsilon)
        poisson = hockey_sticks(sampling_of(2, 1, 2), np.ones(2), 1.5, epsilon)
        charged = math.exp(epsilon) * overflow(2, 1, 1)
        assert max(capped) <= max(poisson) + charged


@BOTH
@pytest.mark.parametrize(("dim", "epsilon"), [(1, 20.0), (10**6, 0.01)])
def test_never_more_than_the_budget(kind, dim, epsilon):
    mechanism = kind(dim=dim, epsilon=epsilon, clients=1000)
    assert 0.999 * epsilon < mechanism.privacy_loss() <= epsilon
    assert math.isfinite(mechanism.sigma)


@BOTH
@pytest.mark.parametrize("bits", [1, 8])
def test_no_client_exceeds_the_bounds_that_privacy_rests_on(kind, bits, seed):
    """Coefficients and their energy after rounding, for structured vectors and for rows of the frame itself."""
    mechanism = kind(dim=40, epsilon=1.0, clients=10**4, bits=bits, coordinates=128)
    assert mechanism.release.dense
    batches = list(structured_vectors(40, np.random.default_rng(seed)).values())
    batches.append(mechanism.frame.rows(np.arange(20)))
    x = 1e3 * np.concatenate(batches)
    levels = (
        2
        * mechanism.encode(x, rng=seed).column("code").astype(float)
        / ((1 << bits) - 1)
        - 1
    )
    assert np.abs(levels).max() <= 1
    assert np.sum(levels**2, axis=1).max() <= mechanism.weight * (1 + 1e-12)
    assert mechanism.weight <= mechanism.frame.size


def test_the_energy_bound_is_enforced(monkeypatch):
    mechanism = L2CSGM(dim=40, epsilon=1.0, clients=100)
    monkeypatch.setattr(L2CSGM, "_energy_limit", 0.25)
    coefficients, missed = mechanism._bounded(np.eye(3, 40, dtype=np.float32))
    beta = mechanism.kashin.bound(mechanism.frame)
    np.testing.assert_allclose(
        np.sum(coefficients**2, axis=1) * beta**2,
        0.25 * mechanism.frame.size,
        rtol=1e-6,
    )
    assert missed.all()


# --- the round --------------------------------------------------------------------------------------------------------


def full_round(mechanism, x, seed):
    aggregator = mechanism.aggregator()
    aggregator.update(mechanism.encode(x, rng=seed))
    return aggregator


@BOTH
@pytest.mark.parametrize(
    "changes", [{"coordinates": 64}, {"bits": 1, "coordinates": 2}]
)
def test_the_error_of_a_round_is_as_stated(kind, changes, seed):
    """200 rounds of 5 different clients: the squared error and 4 projections, |z| < 6 (1e-8)."""
    mechanism = small(kind, clients=5, epsilon=8.0, **changes)
    rounds = 200
    x = some_vectors(5, seed, norm=0.4)
    messages = mechanism.encode(np.tile(x, (rounds, 1)), rng=seed)
    rng = np.random.default_rng(seed)
    means = []
    for k in range(rounds):
        aggregator = mechanism.aggregator()
        aggregator.update(messages[5 * k : 5 * k + 5])
        aggregator.close(rng)
        means.append(aggregator.mean().value)
    means = np.array(means)
    truth = x.mean(axis=0)
    squared = np.sum((means - truth) ** 2, axis=1)
    total = mechanism.expected_mse(x).total
    assert abs(squared.mean() - total) < 6 * squared.std() / rounds**0.5
    for direction in np.concatenate([truth[None], rng.standard_normal((3, 16))]):
        projected = means @ direction
        assert (
            abs(projected.mean() - truth @ direction)
            < 6 * projected.std() / rounds**0.5 + 1e-6
        )
    # The standard error is public and an upper bound, of the right size.
    stderr = aggregator.mean().stderr
    assert np.all(stderr == stderr[0])
    assert total / 16 <= stderr[0] ** 2 * (1 + 1e-9) < 3 * total / 16


def test_copies_of_an_open_round_close_alike(tmp_path, seed):
    """Two releases of one round would average the noise away, were they not the same release."""
    mechanism = small(CSGM)
    messages = mechanism.encode(some_vectors(50, seed), rng=seed)
    aggregator = mechanism.aggregator()
    aggregator.update(messages)
    aggregator.save(tmp_path / "open")
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o600
    means = [
        mechanism.load_aggregator(tmp_path / "open").mean().value for _ in range(3)
    ]
    np.testing.assert_array_equal(means[0], means[1])
    np.testing.assert_array_equal(means[0], aggregator.mean().value)
    # Asking twice gives the same mean, and closing again changes nothing.
    aggregator.close(rng=1)
    np.testing.assert_array_equal(means[0], aggregator.mean().value)
    # Another round of the same messages has another key, and the key of a closed round is gone.
    another = mechanism.aggregator()
    another.update(messages)
    assert not np.array_equal(another.mean().value, means[0])
    assert not aggregator.sums()[mechanism.frame.size + 1 :].any()


def test_merging_ends_the_other_round(seed):
    mechanism = small(CSGM)
    messages = mechanism.encode(some_vectors(20, seed), rng=seed)
    first = mechanism.aggregator()
    second = mechanism.aggregator()
    first.update(messages[:10])
    second.update(messages[10:])
    first.merge(second)
    assert first.count == 20
    assert second.closed
    assert not second.sums()[:-3].any()
    for use in (
        lambda: mechanism.aggregator().merge(second),
        lambda: second.update(messages),
    ):
        with pytest.raises(ValueError, match="round is closed"):
            use()
    with pytest.raises(ValueError, match="at least one message"):
        second.mean()
    with pytest.raises(ValueError, match="with itself"):
        first.merge(first)


def test_a_closed_round_takes_nothing_more(seed):
    mechanism = small(CSGM, clients=20)
    messages = mechanism.encode(some_vectors(20, seed), rng=seed)
    closed = mechanism.aggregator()
    still_open = mechanism.aggregator()
    closed.update(messages[:10])
    with pytest.raises(
        ValueError,
        match="the round must have at most clients = 20 messages, got 10 and 20 more",
    ):
        closed.update(messages)
    still_open.update(messages[10:])
    closed.close()
    with pytest.raises(ValueError, match="the round is closed"):
        closed.update(messages[10:])
    with pytest.raises(ValueError, match="the round is closed"):
        closed.merge(still_open)
    with pytest.raises(ValueError, match="the other aggregator's round is closed"):
        still_open.merge(closed)
    assert closed.count == 10
    assert still_open.count == 10
    assert not still_open.closed


def test_a_closed_round_is_saved_without_its_exact_sums(tmp_path, seed):
    mechanism = small(CSGM)
    aggregator = full_round(mechanism, some_vectors(50, seed), seed)
    exact = aggregator.sums().copy()
    value = aggregator.mean().value
    aggregator.save(tmp_path / "closed.npz")
    with np.load(tmp_path / "closed.npz") as archive:
        stored = archive["state"]
    assert stored.shape == exact.shape
    assert np.count_nonzero(stored[:-1] == exact[:-1] << 16) < 10
    loaded = mechanism.load_aggregator(tmp_path / "closed.npz")
    assert loaded.closed
    assert np.array_equal(loaded.mean().value, value)
    with pytest.raises(ValueError, match="the round is closed"):
        loaded.update(mechanism.encode(np.zeros(16)))


def test_the_divisor_is_the_public_number_of_clients(seed):
    # Half of the clients stay away: the mean is that of all, with nothing from them.
    mechanism = small(L2CSGM, clients=4000, epsilon=8.0)
    x = np.tile(some_vectors(1, seed), (2000, 1))
    estimate = full_round(mechanism, x, seed).mean()
    assert estimate.count == 2000
    assert np.all(np.abs(estimate.value - x[0] / 2) < 6 * estimate.stderr)


def test_noise_is_gaussian_of_the_stated_size(seed):
    """The noise of 2,048 sums: mean and variance at |z| < 6, the fourth moment, which is skewed, at 8 (1e-8)."""
    mechanism = CSGM(dim=800, epsilon=1.0, clients=3, coordinates=100)
    aggregator = mechanism.aggregator()
    aggregator.update(mechanism.encode(np.zeros((2, 800)), rng=seed))
    exact = aggregator.sums()[:-3, 0].copy()
    aggregator.close(rng=seed)
    z = (aggregator.sums()[:-3, 0] / 2**16 - exact) / mechanism.noise_scale
    assert len(z) == 2048
    assert abs(z.mean()) < 6 / 2048**0.5
    assert abs(np.mean(z**2) - 1) < 6 * (2 / 2048) ** 0.5
    assert abs(np.mean(z**4) - 3) < 8 * (96 / 2048) ** 0.5


def test_default_coordinates_are_the_fewest_with_twice_the_error():
    mechanism = L2CSGM(dim=1000, epsilon=1.0, clients=1000)
    kept = mechanism.release.expected
    assert kept & (kept - 1) == 0

    def error(coordinates):
        return Release.calibrated(
            1.0, mechanism.delta, mechanism.weight, mechanism.frame.size, coordinates
        ).error(1000)

    assert error(kept) <= 2 * error(mechanism.frame.size) < error(kept // 2)
    # In a small frame all coefficients are shorter than a seed.
    assert CSGM(dim=4, epsilon=1.0, clients=100).release.dense
