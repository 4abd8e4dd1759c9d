import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from sstq.baselines import sqkr
from sstq.baselines.sqkr import SQKR
from sstq.exactness import TOTAL, exp_lower, log_upper
from sstq.frames.kashin import represent
from sstq.frames.tight import default_frame_size
from sstq.inputs.trial_vectors import structured_vectors
from tests.scripted import ScriptedBits, largest_ratio

VARIANTS = {
    "default": {},
    "fourier": {"frame": "fourier", "frame_size": 37},
}
DIM = 16


def make(variant, **changes):
    return SQKR(
        **{"dim": DIM, "epsilon": 2.0, "clip": 0.5, "frame_seed": 3}
        | VARIANTS[variant]
        | changes
    )


def some_vector(seed, norm=0.5):
    x = np.random.default_rng(seed).standard_normal(DIM)
    return x * (norm / np.linalg.norm(x))


def steps(channel):
    """Where the code of a flat channel can change along the 62-bit word, with the end."""
    return [
        0,
        *(channel.own + i * channel.other for i in range(channel.size - 1)),
        TOTAL,
    ]


def inputs(dim):
    """Unit vectors and their opposites, short ones and zero, some of which a representation clamps."""
    rows = np.concatenate(
        list(structured_vectors(dim, np.random.default_rng(0)).values())
    )[::2]
    return np.concatenate([rows, -rows, 0.2 * rows[:2], np.zeros((1, dim))])


def subsampled_distribution(mechanism, x, choice):
    """The exact distribution of the bits given the words that choose coordinates and round; both ends of every step."""
    places = steps(mechanism.channel)
    last = np.array(
        [[start, end - 1] for start, end in itertools.pairwise(places)], dtype=np.uint64
    ).reshape(-1)
    words = np.empty((len(last), len(choice) + 1), dtype=np.uint64)
    words[:, :-1] = choice
    words[:, -1] = last << np.uint64(2)
    rows = mechanism.clip * np.tile(x, (len(last), 1))
    bits, *index = mechanism.encode_rows(rows, ScriptedBits(words), None)
    np.testing.assert_array_equal(bits[::2], bits[1::2])
    distribution = [Fraction(0)] * mechanism.channel.size
    for code, (start, end) in zip(bits[::2], itertools.pairwise(places), strict=True):
        distribution[code] += Fraction(end - start, TOTAL)
    return tuple(distribution), tuple(np.unique(i, axis=0).tobytes() for i in index)


@pytest.mark.parametrize(("k", "epsilon"), [(3, 0.1), (2, 3.0)])
def test_subsampled_messages_are_private_for_every_pair(k, epsilon, seed):
    # Few steps: privacy does not depend on how good the representation is.
    mechanism = SQKR(3, epsilon, k=k, steps=5)
    choices = np.random.default_rng(seed).integers(
        0, 1 << 64, size=(6, 2 * k), dtype=np.uint64
    )
    # all bits up and all down, unless the coefficient forbids it
    choices[0, k:] = 0
    choices[1, k:] = 2**64 - 1
    reached = set()
    for choice in choices:
        outcomes = [subsampled_distribution(mechanism, x, choice) for x in inputs(3)]
        # What is not the channel's does not depend on the data.
        assert len({index for _, index in outcomes}) == 1
        reached |= {distribution for distribution, _ in outcomes}
    assert all(sum(distribution) == 1 for distribution in reached)
    # Given the token, and so for every mixture over tokens: for any pair of vectors.
    ratio = largest_ratio(reached)
    assert ratio <= exp_lower(epsilon)
    assert log_upper(ratio) == mechanism.privacy_loss() <= epsilon
    assert mechanism.privacy_loss() > epsilon - 1e-10


def dense_distribution(mechanism, x, rounding):
    """The exact distribution of a dense message given the words that round: all 2^N z, both ends of both sides."""
    size = mechanism.frame.size
    inner = mechanism.channel.own
    last = np.array([0, inner - 1, inner, TOTAL - 1], dtype=np.uint64)
    words = np.empty((1 << size, 4, len(rounding) + 2), dtype=np.uint64)
    words[..., :-2] = rounding
    words[..., -2] = np.arange(1 << size)[:, None]
    words[..., -1] = last << np.uint64(2)
    rows = mechanism.clip * np.tile(x, (4 << size, 1))
    (bits,) = mechanism.encode_rows(rows, ScriptedBits(words), None)
    sent = np.packbits(bits.reshape(-1, size), axis=1, bitorder="little")[:, 0].reshape(
        -1, 4
    )
    np.testing.assert_array_equal(sent[:, 0], sent[:, 1])
    np.testing.assert_array_equal(sent[:, 2], sent[:, 3])
    distribution = [Fraction(0)] * (1 << size)
    for inside, outside in sent[:, ::2]:
        distribution[inside] += Fraction(inner, TOTAL << size)
        distribution[outside] += Fraction(TOTAL - inner, TOTAL << size)
    return tuple(distribution)


dense_sizes = pytest.mark.parametrize(
    ("dim", "frame", "size"),
    [(1, "hadamard", 1), (2, "hadamard", 4), (2, "fourier", 5)],
)


@dense_sizes
def test_dense_messages_are_private_for_every_pair(dim, frame, size, seed):
    epsilon = 3.0
    # Few steps: privacy does not depend on how good the representation is.
    mechanism = SQKR(
        dim, epsilon, variant="dense", frame=frame, frame_size=size, steps=5
    )
    words = np.random.default_rng(seed).integers(
        0, 1 << 64, size=(3, -(-size // 2)), dtype=np.uint64
    )
    # all bits up and all down, unless the coefficient forbids it
    words[0] = 0
    words[1] = 2**64 - 1
    reached = {
        dense_distribution(mechanism, x, rounding)
        for x in inputs(dim)
        for rounding in words
    }
    assert all(sum(distribution) == 1 for distribution in reached)
    ratio = largest_ratio(reached)
    assert ratio <= exp_lower(epsilon)
    # Opposite bits reach the ratio, ties or not.
    assert log_upper(ratio) == mechanism.privacy_loss() <= epsilon


@dense_sizes
def test_dense_moments_are_the_enumeration(dim, frame, size):
    mechanism = SQKR(dim, 1.5, variant="dense", frame=frame, frame_size=size, steps=5)
    signs = (
        2
        * np.unpackbits(
            np.arange(1 << size, dtype=np.uint8)[:, None], axis=1, bitorder="little"
        )[:, :size]
        - 1.0
    )
    rounding = np.full(-(-size // 2), 0x8000_0000_8000_0000, dtype=np.uint64)
    for x in inputs(dim):
        y = represent(mechanism.frame, mechanism.kashin, x[None].astype(np.float32))[0][
            0
        ]
        # A word of one half rounds up just above y = 0.
        v = np.where(y > 0, 1.0, -1.0)
        probability = np.array(
            [float(p) for p in dense_distribution(mechanism, x, rounding)]
        )
        np.testing.assert_allclose(probability @ signs, mechanism.gain * v, atol=1e-14)
        np.testing.assert_allclose(
            signs.T * probability @ signs, np.eye(size), atol=1e-14
        )


def never_outside(z, v, outside, turn=sqkr.turn_to_side):
    """The side is not randomized, so a message rules half of the inputs out."""
    turn(z, v, np.zeros_like(outside))


def broken_ties(z, v, outside, turn=sqkr.turn_to_side):
    """Where ⟨z, v⟩ = 0, z is turned until z_1 = v_1, so ties of one input are impossible for another."""
    tie = (2 * np.count_nonzero(z != v, axis=1) == z.shape[1]) & (z[:, 0] != v[:, 0])
    turn(z, v, outside)
    z ^= tie.astype(np.uint8)[:, None]


@pytest.mark.parametrize("mutant", [never_outside, broken_ties])
def test_dense_mutants_fail_the_enumeration(mutant, monkeypatch):
    monkeypatch.setattr(sqkr, "turn_to_side", mutant)
    mechanism = SQKR(2, 1.0, variant="dense", frame_size=4)
    rounding = np.full(2, 1 << 63, dtype=np.uint64)
    with pytest.raises(ZeroDivisionError):
        largest_ratio({dense_distribution(mechanism, x, rounding) for x in inputs(2)})


@pytest.mark.parametrize("k", [1, 3])
def test_subsampled_error_is_the_enumeration(k):
    """E[x̂] and E‖x̂‖² over all coordinates, bits and codes, by plain loops over the integer matrix."""
    mechanism = SQKR(2, 1.5, clip=0.5, k=k, frame="orthogonal", frame_size=5)
    x = np.array([0.3, -0.35])
    y = represent(
        mechanism.frame, mechanism.kashin, (x[None] / 0.5).astype(np.float32)
    )[0][0].astype(float)
    rows = mechanism.frame.rows(np.arange(5))
    matrix = np.asarray(mechanism.channel.matrix, dtype=float) / TOTAL
    signs = 2.0 * (np.arange(1 << k)[:, None] >> np.arange(k) & 1) - 1
    gap = (mechanism.channel.own - mechanism.channel.other) / TOTAL
    mean = np.zeros(2)
    power = 0.0
    for chosen in itertools.product(range(5), repeat=k):
        drawn = list(chosen)
        token = np.prod((1 + signs * y[drawn]) / 2, axis=1)
        estimates = 2 / k * mechanism.bound / gap * signs @ rows[drawn]
        mean += token @ matrix @ estimates / 5**k
        power += token @ matrix @ np.sum(estimates**2, axis=1) / 5**k
    error = mechanism.expected_mse(x)
    assert error.bias2 == pytest.approx(np.sum((mean - x) ** 2), abs=1e-12)
    assert error.variance == pytest.approx(power - mean @ mean, rel=1e-9)
    assert error.bias2 < 1e-9


@pytest.mark.parametrize(
    "arguments",
    [
        {"k": 6},  # κ = 3.6: the cross terms are a sixth of the second moment
        {"k": 3, "frame": "orthogonal", "frame_size": 11},
        {"variant": "dense"},
    ],
)
def test_the_second_moment_is_that_of_the_decoded_messages(arguments, seed):
    """4 z-tests at |z| < 6 (1e-8), of a spike in few dimensions, where the cross terms weigh most."""
    mechanism = SQKR(4, 3.0, **arguments)
    count = 20_000
    messages = mechanism.encode(np.tile([0.0, -1.0, 0.0, 0.0], (count, 1)), rng=seed)
    aggregator = mechanism.aggregator()
    aggregator.update(messages)
    squares = mechanism.decode(messages) ** 2
    estimate = aggregator.mean()
    second_moment = estimate.stderr**2 * (count - 1) + estimate.value**2
    assert np.all(
        np.abs(second_moment - squares.mean(axis=0))
        < 6 * squares.std(axis=0) / count**0.5 + 1e-9
    )
    if arguments.get("k") == 6:
        # Without the cross terms the same test fails.
        without = second_moment - mechanism.cross * aggregator.mean().value ** 2
        assert (
            abs(without[1] - squares[:, 1].mean())
            > 6 * squares[:, 1].std() / count**0.5
        )


def mean_error(dim, seeds, **arguments):
    """Over frames and Gaussian vectors of norm clip; the seeds are fixed, for the statement is about an average."""
    totals = []
    for seed in range(seeds):
        mechanism = SQKR(dim, 3.0, frame_seed=seed, **arguments)
        x = np.random.default_rng(seed).standard_normal(dim)
        totals.append(
            mechanism.expected_mse(mechanism.clip * x / np.linalg.norm(x)).total
        )
    return np.mean(totals)


@pytest.mark.parametrize(("dim", "published"), [(100, 4.2), (10_000, 328)])
def test_published_errors_are_those_of_three_bits(dim, published):
    # Paper, Fig. "MSE versus dimension" (ε = 3, C = 0.2): 4.2 and 328; measured: k = 3 and K = 2, clamped.
    error = mean_error(dim, 3, clip=0.2, kashin="paper", k=3)
    assert error == pytest.approx(published, rel=0.01)
    beta2 = 4 / (default_frame_size(dim) / dim)
    assert error == pytest.approx(
        beta2 / 3 * ((np.exp(3) + 7) / (np.exp(3) - 1)) ** 2 * dim * 0.2**2, rel=0.01
    )
    # The k of its communication table does not give the figure.
    assert mean_error(dim, 3, clip=0.2, kashin="paper", k=4) > 1.2 * published


@pytest.mark.parametrize("epsilon", [0.1, 3.0, 8.0])
def test_the_default_k_has_the_least_error(epsilon):
    x = some_vector(0)
    errors = {
        k: make("default", epsilon=epsilon, k=k).expected_mse(x).total
        for k in range(1, 15)
    }
    assert make("default", epsilon=epsilon).k == min(errors, key=errors.get)


@pytest.mark.parametrize(
    ("arguments", "bits"),
    [
        ({"k": 4}, 4 * 17),
        # 64: paper, Table "Communication cost", which counts ⌈log₂ d⌉
        ({"k": 4, "frame_size": 32_768}, 4 * 16),
        ({"k": 1}, 17),
        ({"variant": "dense"}, 65_536),
    ],
)
def test_bits_on_the_wire(arguments, bits):
    assert SQKR(25_450, 3.0, steps=1, **arguments).message_bits == bits


def test_a_message_decodes_as_the_signed_sum_of_its_rows():
    mechanism = make("default", k=3)
    messages = mechanism.encode(np.tile(some_vector(0), (3, 1)))
    index, bits = mechanism.estimator.indices_and_bits(messages)
    rows = mechanism.frame.rows(index.reshape(-1)).reshape(3, 3, DIM)
    by_hand = np.einsum("nk,nkd->nd", 2.0 * bits - 1, rows) * (
        DIM * mechanism.bound / 3 / mechanism.gain
    )
    np.testing.assert_allclose(mechanism.decode(messages), by_hand, rtol=1e-12)


@pytest.mark.parametrize("half", [1, 511, 512, 20_000])
def test_central_binomial(half):
    exact = Fraction(math.comb(2 * half, half), 4**half)
    assert abs(Fraction(sqkr._central_binomial(half)) / exact - 1) < 5e-16
