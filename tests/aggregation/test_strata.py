"""Means by strata. z-tests use |z| < 6 (false-failure rate 2e-9 each, fewer than 200 of them)."""

import itertools

import numpy as np
import pytest
from scipy.stats import binom

import sstq
from sstq.aggregation import FrameAggregator, StratifiedAggregator
from sstq.aggregation.strata import MESSAGES_PER_STRATUM, _count_chances, stratified_variance
from sstq.frames.tight import OrthogonalFrame
from sstq.inputs.trial_vectors import structured_vectors
from sstq.randomness import streams

Z = 6.0
# At level √N the frame coefficients themselves are a representation, so that one step does and rounds are fast.
KASHIN = {"kashin": "paper", "level": 4.0, "steps": 1}
PARTS = {"dim": 6, "epsilon": 6.0, "bits": 4, "clip": 0.7, "frame_size": 16, **KASHIN}
PRIVATE, SMALL = sstq.SSTQ(**PARTS), sstq.SSTQ(**PARTS, coin="public")
LEAST = MESSAGES_PER_STRATUM * SMALL.frame.size


def random_ids(count, rng):
    """A public coin of its own: identifiers that nobody has used."""
    return rng.integers(0, 1 << 63, size=count, dtype=np.uint64)


def aggregate(messages, mechanism=SMALL, kind=StratifiedAggregator):
    aggregator = kind(mechanism)
    aggregator.update(messages)
    return aggregator


def sample(count, rng=1, mechanism=SMALL):
    x = np.random.default_rng(rng).standard_normal((count, mechanism.dim))
    return mechanism.encode(x, rng=rng, clients=np.arange(count))


def rounds_of(mechanism, x, rounds, rng):
    """The estimates of many rounds in which the same clients hold the rows of x, with a fresh coin each."""
    messages = mechanism.encode(np.tile(x, (rounds, 1)), rng=rng, clients=random_ids(rounds * len(x), rng))
    return [aggregate(messages[k * len(x) : (k + 1) * len(x)], mechanism).mean() for k in range(rounds)]


def assert_mean(samples, expected, slack=0.0, z=Z):
    """The mean of the samples is the expected one, to z standard errors."""
    margin = z * np.std(samples, axis=0) / len(samples) ** 0.5 + slack
    assert np.all(np.abs(np.mean(samples, axis=0) - expected) <= margin)


@pytest.mark.parametrize("frame", ["hadamard", "orthogonal", "fourier"])
def test_full_strata_give_their_means_and_within_stratum_errors(frame):
    """Against the textbook formulas on dense matrices; with 100 messages per stratum none is empty."""
    mechanism = sstq.SSTQ(**PARTS, coin="public", frame=frame)
    messages = sample(1600, mechanism=mechanism)
    index, code = mechanism.indices_and_codes(messages)
    w = mechanism.decoding_values[code] * mechanism.decoding_scale
    strata = [w[index == j] for j in range(16)]
    u = mechanism.frame.rows(np.arange(16))
    value = 6 / 16 * u.T @ [np.mean(stratum) for stratum in strata]
    variance = (6 / 16) ** 2 * (u**2).T @ [np.var(stratum, ddof=1) / len(stratum) for stratum in strata]
    estimate = aggregate(messages, mechanism).mean()
    assert (estimate.estimator, estimate.count, estimate.simulated) == ("strata", 1600, True)
    np.testing.assert_allclose(estimate.value, value, rtol=1e-6)
    np.testing.assert_allclose(estimate.stderr, variance**0.5, rtol=1e-6)


def test_an_empty_stratum_counts_as_zero():
    ids = np.arange(3000, dtype=np.uint64)
    index = streams.indices_of(SMALL.frame.seed, "assign", ids, SMALL.frame.size)
    ids = ids[index != 5]
    messages = SMALL.encode(np.tile(np.full(6, 0.2), (len(ids), 1)), rng=1, clients=ids)
    index, code = SMALL.indices_and_codes(messages)
    w = SMALL.decoding_values[code] * SMALL.decoding_scale
    means = [np.mean(w[index == j]) if j != 5 else 0.0 for j in range(SMALL.frame.size)]
    chance = 1 - (1 - 1 / SMALL.frame.size) ** len(ids)
    estimate = aggregate(messages).mean()
    np.testing.assert_allclose(estimate.value, SMALL.frame.synthesize(np.array([means]))[0] / chance, rtol=1e-9)
    assert np.isfinite(estimate.stderr).all()


def test_few_messages_give_the_plain_mean():
    for count in (2, SMALL.frame.size, LEAST - 1):
        messages = sample(count)
        estimate, plain = aggregate(messages).mean(), aggregate(messages, kind=FrameAggregator).mean()
        assert estimate.estimator == plain.estimator == "mean"
        np.testing.assert_array_equal(estimate.value, plain.value)
        np.testing.assert_array_equal(estimate.stderr, plain.stderr)
    assert aggregate(sample(LEAST)).mean().estimator == "strata"
    assert np.isnan(aggregate(sample(1)).mean().stderr).all()
    with pytest.raises(ValueError, match="a mean needs at least one message"):
        SMALL.aggregator().mean()


@pytest.mark.soak
@pytest.mark.parametrize("name", ["mixed", "gaussian", "spike", "zero"])
def test_strata_are_unbiased_with_the_expected_error(name, seed):
    """At the least number of messages, where a stratum stays empty in about one round of a hundred.

    These rounds have by far the largest squares: a sample with few of them has a small mean and a small deviation. Six
    standard errors would be wrong up to four times in a million (resampled from 30,000 rounds), and each more makes
    that ten times as rare: eight.
    """
    rng = np.random.default_rng(seed)
    named = structured_vectors(6, rng) | {"zero": np.zeros((1, 6))}
    kinds = np.concatenate([*named.values()]) if name == "mixed" else named[name][:1]
    x = 0.7 * kinds[np.arange(LEAST) % len(kinds)]
    estimates = rounds_of(SMALL, x, 1500, rng)
    values = np.array([estimate.value for estimate in estimates])
    assert_mean(values, x.mean(axis=0), slack=1e-6)
    expected = SMALL.expected_mse(x)
    assert_mean(np.sum((values - x.mean(axis=0)) ** 2, axis=1), expected.total, z=8.0)
    # The standard errors are those of clients drawn from a population: what the clients' own spread adds is in them.
    spread = np.sum(np.var(x, axis=0, ddof=1)) / len(x)
    assert_mean([np.sum(estimate.stderr**2) for estimate in estimates], expected.variance + spread, z=8.0)
    if name == "gaussian":
        single = SMALL.expected_mse(x[0], clients=LEAST)
        assert single.variance == pytest.approx(expected.variance, rel=1e-6)


@pytest.mark.soak
def test_error_bars_cover(seed):
    """95 % bars cover the true mean in 95 % of the cases, but for half a point for the normal approximation.

    That takes some dozens of codes that the channel replaced, here every twelfth; the level holds a Gaussian vector.
    """
    mechanism = sstq.SSTQ(64, 3.5, bits=2, coin="public", frame_size=256, **KASHIN | {"level": 10.0})
    rng = np.random.default_rng(seed)
    x = np.tile(structured_vectors(64, rng)["gaussian"][0], (8 * mechanism.frame.size, 1))
    estimates = rounds_of(mechanism, x, 200, rng)
    covered = [np.mean(np.abs(e.value - x[0]) <= 1.959964 * e.stderr) for e in estimates]
    margin = Z * np.std(covered) / len(covered) ** 0.5 + 0.005
    assert abs(np.mean(covered) - 0.95) < margin
    assert margin < 0.03


@pytest.mark.soak
def test_drop_outs_that_depend_on_the_coordinate_do_no_harm(seed):
    """Three of four clients of every third stratum are lost: strata do not notice, the plain mean is far off."""
    rng = np.random.default_rng(seed)
    x = np.full(6, 0.28)
    values, plain = [], []
    for _ in range(300):
        ids = random_ids(30 * SMALL.frame.size, rng)
        index = streams.indices_of(SMALL.frame.seed, "assign", ids, SMALL.frame.size)
        ids = ids[(index % 3 > 0) | (rng.random(len(ids)) < 0.25)]
        messages = SMALL.encode(np.tile(x, (len(ids), 1)), rng=rng, clients=ids)
        values.append(aggregate(messages).mean().value)
        plain.append(aggregate(messages, kind=FrameAggregator).mean().value)
    # Seven standard errors: the values are skewed by 0.7, which makes six of 300 rounds wrong about once in a million.
    assert_mean(values, x, slack=1e-6, z=7.0)
    with pytest.raises(AssertionError):
        assert_mean(plain, x, z=7.0)


def test_the_expected_variance_is_that_of_all_assignments():
    """Every assignment of twelve clients to two strata, empty strata and all, one by one."""
    rng, strata, clients = np.random.default_rng(2), 2, 12
    frame = OrthogonalFrame(2, strata)
    first = np.tile(rng.standard_normal(strata), (clients, 1))
    noise = rng.random((clients, strata))
    u = frame.rows(np.arange(strata))
    chance = 1 - (1 - 1 / strata) ** clients
    means, variances = [], []
    for assignment in itertools.product(range(strata), repeat=clients):
        members = [np.flatnonzero(np.array(assignment) == j) for j in range(strata)]
        y = [first[m, j].mean() if len(m) else 0.0 for j, m in enumerate(members)]
        v = np.array([noise[m, j].mean() / len(m) if len(m) else 0.0 for j, m in enumerate(members)])
        means.append(2 / strata * u.T @ y / chance)
        variances.append(float(np.sum((2 / strata * u / chance) ** 2 * v[:, None])))
    np.testing.assert_allclose(np.mean(means, axis=0), 2 / strata * u.T @ first.mean(axis=0), atol=1e-12)
    expected = stratified_variance(frame, clients, first[0], first[0] ** 2 + noise.mean(axis=0))
    # The formula leaves out what one empty stratum tells of another.
    assert expected == pytest.approx(np.sum(np.var(means, axis=0)) + np.mean(variances), rel=1e-5)


@pytest.mark.parametrize(("messages", "strata"), [(8, 1), (16, 2), (80, 3), (8192, 1024), (10**6, 10), (10**9, 2**10)])
def test_chances_of_counts(messages, strata):
    some, several, inverse = _count_chances(messages, strata)
    mean = messages / strata
    window = np.arange(max(1, int(mean - 20 * mean**0.5)), min(messages, int(mean + 20 * mean**0.5 + 40)) + 1)
    assert some == pytest.approx(binom.sf(0, messages, 1 / strata), rel=1e-12)
    assert several == pytest.approx(binom.sf(1, messages, 1 / strata), rel=1e-12)
    # SciPy's own terms are good to about 1e-9 at the largest of these.
    assert inverse == pytest.approx(np.sum(binom.pmf(window, messages, 1 / strata) / window), rel=1e-8)


def test_chances_of_huge_counts_join_on():
    below, above = (_count_chances(n, 1000)[2] for n in (10**9, 10**9 + 1000))
    assert above * (1 + 1e-6) == pytest.approx(below, rel=2e-12)
    assert _count_chances(2**62, 4)[2] == pytest.approx(4 / 2**62)


def test_the_expected_error_changes_with_the_estimator():
    x = np.full(6, 0.28)
    for clients in (None, 2, LEAST - 1):
        assert SMALL.expected_mse(x, clients) == PRIVATE.expected_mse(x, clients)
    assert SMALL.expected_mse(x, LEAST).variance < PRIVATE.expected_mse(x, LEAST).variance / 2
    assert SMALL.expected_mse(x, 2**62).variance > 0
    with pytest.raises(ValueError, match="rows of x, which are the clients"):
        SMALL.expected_mse(np.tile(x, (LEAST, 1)), clients=3)


def test_the_loss_of_clients_with_nothing_in_common_is_bounded():
    """At most 18 %, at the least number of messages, and less with each more (the module's docstring)."""
    private = sstq.SSTQ(dim=64, epsilon=4.0, bits=3)
    assigned = sstq.SSTQ(dim=64, epsilon=4.0, bits=3, coin="public")
    losses = [assigned.expected_mse(np.zeros(64), n).total / private.expected_mse(np.zeros(64), n).total
              for n in (8 * 256, 12 * 256, 100 * 256)]  # fmt: skip
    assert 1.18 > losses[0] > losses[1] > losses[2] > 1
    assert losses[2] < 1.012


def test_private_messages_have_strata_too():
    """Their index is in the message and drawn without looking at the data: the same gain for who asks for it."""
    messages = PRIVATE.encode(np.full((LEAST, 6), 0.28), rng=1)
    assert aggregate(messages, PRIVATE).mean().estimator == "strata"
    assert type(PRIVATE.aggregator()) is FrameAggregator


def test_coordinates_that_depend_on_the_data_are_no_strata():
    with pytest.raises(ValueError, match="without looking at the data for strata, got FrameUnit"):
        StratifiedAggregator(sstq.mechanism("frameunit", dim=6, epsilon=2.0))
