import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sstq.exactness import TOTAL
from sstq.scalar.channels import (
    Channel,
    FlatChannel,
    TableChannel,
    flat_channel,
    flat_channel_of_size,
    unbiased_decoder,
)
from sstq.scalar.codebooks import (
    Codebook,
    optimized_codebook,
    panter_dite_codebook,
    uniform_codebook,
)
from sstq.scalar.densities import Density
from sstq.scalar.metric_aware import (
    laplace_probabilities,
    loss_optimal_codebook,
    metric_aware_channel,
    resolve_rate,
)

EPSILONS = [0.01, 0.5, 3.0, 20.0]
TYPICAL = Density.kashin(1.8, 2.575)


def exp_upper(epsilon: float) -> Fraction:
    """Bound e^ε from above by its Taylor polynomial: independent of ``decimal`` and within 1e-40 of e^ε."""
    x = Fraction(epsilon)
    total = Fraction(1)
    term = Fraction(1)
    for k in range(1, 160):
        term = Fraction(math.ceil(term * x / k * (1 << 300)), 1 << 300)
        total += term
    return total + term


def exp_below(epsilon: float) -> Fraction:
    return exp_upper(epsilon) - Fraction(1, 1 << 200)


def check_exactly(matrix: np.ndarray, epsilon: float) -> None:
    """The definition, in Python integers: rows sum to 2^62; columns are all zero or within a factor e^ε."""
    rows = matrix.tolist()
    assert all(sum(row) == TOTAL for row in rows)
    limit = exp_below(epsilon)
    for column in zip(*rows, strict=True):
        if any(column):
            assert min(column) > 0
            assert max(column) <= limit * min(column)


def check_loss(channel: Channel, matrix: np.ndarray) -> None:
    """The stated loss is the next double above the exact logarithm, and not above ε."""
    ratios = [
        Fraction(max(c), min(c)) for c in zip(*matrix.tolist(), strict=True) if any(c)
    ]
    loss = channel.privacy_loss()
    assert loss <= channel.epsilon
    assert exp_upper(loss) >= max(ratios)
    if max(ratios) > 1:
        assert exp_below(math.nextafter(loss, 0.0)) < max(ratios)


def reference_codes(
    matrix: np.ndarray, tokens: np.ndarray, words: np.ndarray
) -> np.ndarray:
    """Walk along the weights in Python integers."""
    codes = []
    for token, word in zip(tokens.tolist(), words.tolist(), strict=True):
        code = 0
        left = word
        for weight in matrix[token].tolist():
            if left < weight:
                break
            left -= weight
            code += 1
        codes.append(code)
    return np.array(codes)


# --- exact privacy ---


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("bits", [1, 2, 5, 8])
def test_channels_are_exactly_private_and_spend_their_budget(
    bits: int, epsilon: float
) -> None:
    book = uniform_codebook(bits)
    # The flat construction's promise: the budget lost is below 1e-10.
    for channel, lost in (
        (flat_channel(bits, epsilon), 1e-10),
        (metric_aware_channel(book, epsilon), 1e-9),
    ):
        matrix = channel.matrix
        assert matrix.shape == (1 << bits, 1 << bits) == channel.shape
        assert matrix.dtype == np.int64
        check_exactly(matrix, epsilon)
        check_loss(channel, matrix)
        assert channel.privacy_loss() >= epsilon - lost * max(1, epsilon)
        assert channel.used.all()
    # Rounding and shrinking move a probability by no more than the budget they cost.
    expected = laplace_probabilities(
        book.values, resolve_rate(book.values, epsilon, "calibrated")
    )
    np.testing.assert_allclose(channel.probabilities(), expected, rtol=1e-7, atol=1e-15)


@pytest.mark.parametrize("bits", [10, pytest.param(12, marks=pytest.mark.soak)])
def test_metric_aware_channel_of_many_bits(bits: int) -> None:
    epsilon = 3.0
    channel = metric_aware_channel(uniform_codebook(bits), epsilon)
    assert epsilon * (1 - 1e-8) <= channel.privacy_loss() <= epsilon
    tops = channel.matrix.max(axis=0).tolist()
    bottoms = channel.matrix.min(axis=0).tolist()
    limit = exp_below(epsilon)
    assert all(top <= limit * bottom for top, bottom in zip(tops, bottoms, strict=True))
    assert all(sum(row.tolist()) == TOTAL for row in channel.matrix[::100])


@pytest.mark.parametrize("epsilon", [0.01, 3.0, 20.0])
@pytest.mark.parametrize("bits", [2, 7])
def test_metric_aware_channel_with_every_codebook(bits: int, epsilon: float) -> None:
    books = [optimized_codebook(bits, epsilon), panter_dite_codebook(bits, TYPICAL)]
    books += [loss_optimal_codebook(bits, TYPICAL, epsilon)] if bits == 2 else []
    for book in books:
        channel = metric_aware_channel(book, epsilon)
        check_exactly(channel.matrix, epsilon)
        check_loss(channel, channel.matrix)
        assert channel.privacy_loss() >= epsilon * (1 - 1e-5)


def test_equal_codewords_have_equal_rows_and_the_first_owns_the_cell() -> None:
    book = Codebook("repeats", [-1.0, -1.0, 0.0, 0.0, 0.0, 0.5, 1.0, 1.0])
    channel = metric_aware_channel(book, 3.0)
    check_exactly(channel.matrix, 3.0)
    assert channel.used.tolist() == [True, False, True, False, False, True, True, False]
    for first, again in [(0, 1), (2, 3), (2, 4), (6, 7)]:
        assert np.array_equal(channel.matrix[first], channel.matrix[again])


def test_cells_too_thin_for_integers_are_never_sent() -> None:
    book = optimized_codebook(8, 3.0)
    channel = metric_aware_channel(book, 3.0)
    distinct = np.unique(book.values)
    assert distinct.size == 23
    assert channel.used.sum() == 16
    unsent = np.setdiff1d(distinct, book.values[channel.used])
    assert np.abs(unsent).max() < 1e-11
    check_exactly(channel.matrix, 3.0)


@given(
    st.lists(st.floats(-1, 1), min_size=6, max_size=6),
    st.floats(0.01, 20),
    st.sampled_from(["calibrated", "paper"]),
)
def test_any_codebook_gives_an_exactly_private_channel(
    inner: list[float], epsilon: float, rate: str
) -> None:
    channel = metric_aware_channel(
        Codebook("any", [-1.0, *sorted(inner), 1.0]), epsilon, rate
    )
    check_exactly(channel.matrix, epsilon)
    check_loss(channel, channel.matrix)


# --- sampling ---

# Made where they are used: one that cannot be made fails its tests, not the file.
CHANNELS = {
    "flat, 2": lambda: flat_channel_of_size(2, 3.0),
    "flat, 8": lambda: flat_channel_of_size(8, 0.01),
    "flat, 16": lambda: flat_channel_of_size(16, 20.0),
    "metric-aware, uniform": lambda: metric_aware_channel(uniform_codebook(4), 3.0),
    "metric-aware, optimized": lambda: metric_aware_channel(
        optimized_codebook(5, 1.0), 1.0
    ),
    "metric-aware, repeated ends": lambda: metric_aware_channel(
        Codebook("ends", [-1.0, -1.0, 1.0, 1.0]), 3.0
    ),
}


@pytest.fixture(params=CHANNELS)
def channel(request: pytest.FixtureRequest) -> Channel:
    return CHANNELS[request.param]()


def test_codes_at_every_boundary(channel: Channel) -> None:
    matrix = channel.matrix
    if isinstance(channel, FlatChannel):
        # The own weight comes first, then the other tokens in order.
        edges = [0, channel.own] + [
            channel.own + channel.other * k for k in range(1, channel.size)
        ]
        bounds = [edges] * channel.size
    else:
        bounds = [[0, *np.cumsum(row.astype(object))] for row in matrix]
    tokens = []
    words = []
    for token, row in enumerate(bounds):
        near = sorted(
            {
                edge + shift
                for edge in row
                for shift in (-1, 0, 1)
                if 0 <= edge + shift < TOTAL
            }
        )
        words += near
        tokens += [token] * len(near)
    tokens = np.array(tokens)
    words = np.array(words, dtype=np.uint64)
    codes = channel.sample(tokens, words)
    assert codes.dtype == np.int64
    if isinstance(channel, FlatChannel):
        others = [
            [token, *(k for k in range(channel.size) if k != token)]
            for token in range(channel.size)
        ]
        weights = np.array(
            [[channel.own] + [channel.other] * (channel.size - 1)] * channel.size
        )
        place = reference_codes(weights, tokens, words)
        expected = np.array(
            [others[token][k] for token, k in zip(tokens, place, strict=True)]
        )
    else:
        expected = reference_codes(matrix, tokens, words)
    assert np.array_equal(codes, expected)
    assert channel.used[codes].all()


# --- moments and decoders ---


def test_moments_are_those_of_the_integers(channel: Channel, seed: int) -> None:
    w = np.random.default_rng(seed).normal(size=channel.shape[1])
    first, second = channel.moments(w)
    exact = [Fraction(float(x)) for x in w]
    for k, row in enumerate(channel.matrix.tolist()):
        mean = sum(weight * x for weight, x in zip(row, exact, strict=True)) / TOTAL
        square = (
            sum(weight * x * x for weight, x in zip(row, exact, strict=True)) / TOTAL
        )
        assert first[k] == pytest.approx(float(mean), abs=1e-13)
        assert second[k] == pytest.approx(float(square), abs=1e-13)


def bias(channel: Channel, values: np.ndarray, book: Codebook) -> float:
    """Return max_k |Σ_i P(i|k)·w_i − c_k| in rational arithmetic."""
    exact = [Fraction(float(w)) for w in values]
    means = [
        sum(a * w for a, w in zip(row, exact, strict=True)) / TOTAL
        for row in channel.matrix.tolist()
    ]
    return float(
        max(
            abs(mean - Fraction(float(c)))
            for mean, c in zip(means, book.values, strict=True)
        )
    )


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_unbiased_decoder_of_the_flat_channel(epsilon: float) -> None:
    lopsided = Codebook("lopsided", [-1.0, 0.1, 0.5, 0.5, 0.6, 0.7, 0.9, 1.0])
    for book in (uniform_codebook(4), optimized_codebook(6, epsilon), lopsided):
        channel = flat_channel_of_size(book.size, epsilon)
        values = unbiased_decoder(channel, book)
        assert bias(channel, values, book) <= 1e-15 * book.size / epsilon + 1e-15


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_unbiased_decoder_of_the_metric_aware_channel(epsilon: float) -> None:
    repeats = Codebook("repeats", [-1.0, -1.0, 0.0, 0.0, 0.0, 0.5, 1.0, 1.0])
    books = (
        uniform_codebook(4),
        optimized_codebook(5, epsilon),
        panter_dite_codebook(5, TYPICAL),
        repeats,
    )
    for book in books:
        channel = metric_aware_channel(book, epsilon)
        values = unbiased_decoder(channel, book)
        assert bias(channel, values, book) <= 1e-9
        assert not values[~channel.used].any()


def test_decoders_that_do_not_exist_are_refused() -> None:
    book = uniform_codebook(1)
    same = [[TOTAL // 2, TOTAL // 2]] * 2
    with pytest.raises(
        ValueError, match=r"off by 1.0e\+00.*fewer bits or a larger epsilon"
    ):
        unbiased_decoder(TableChannel("blind", 1.0, same), book)


# --- what must not pass ---


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"own": 2}, "own must be above other and a row sum to 2"),
        ({"own": TOTAL, "other": 0}, "own must be above other"),
        ({"own": TOTAL // 16, "other": TOTAL // 16}, "own must be above other"),
        ({"size": 17}, "a row sum to 2"),
        ({"epsilon": 2.99}, "not 2.99-LDP"),
        ({"epsilon": math.nan}, "not nan-LDP"),
    ],
)
def test_tampered_flat_channels_are_refused(
    change: dict[str, object], message: str
) -> None:
    channel = flat_channel_of_size(16, 3.0)
    sound = {"epsilon": 3.0, "size": 16, "own": channel.own, "other": channel.other}
    assert FlatChannel(**sound) == channel
    with pytest.raises(ValueError, match=message):
        FlatChannel(**sound | change)


def test_one_unit_more_is_too_much_for_a_flat_channel() -> None:
    # b is the least integer with (2^62 − (M − 1)b)/b ≤ e^ε: one less is no longer private.
    for epsilon in EPSILONS:
        channel = flat_channel_of_size(16, epsilon)
        with pytest.raises(ValueError, match="-LDP: its largest ratio"):
            FlatChannel(epsilon, 16, channel.own + 15, channel.other - 1)


def tampered(epsilon: float = 3.0) -> list[list[int]]:
    return metric_aware_channel(uniform_codebook(2), epsilon).matrix.tolist()


def test_a_shifted_weight_is_refused() -> None:
    for shift in (1 << 20, 1 << 30, 1 << 50):
        matrix = tampered()
        # Row 3 holds the least weight of column 0; moving some of it elsewhere keeps the sum.
        matrix[3][0] -= shift
        matrix[3][3] += shift
        with pytest.raises(
            ValueError,
            match=r"not 3.0-LDP: its largest ratio of weights is 2\d\..*above e\^",
        ):
            TableChannel("metric-aware", 3.0, matrix)


def test_tampered_tables_are_refused() -> None:
    def refuse(matrix: object, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            TableChannel("metric-aware", 3.0, matrix)

    matrix = tampered()
    matrix[1][2] += 1
    refuse(matrix, r"row 1 of matrix must sum to exactly 2\^62")
    matrix = tampered()
    matrix[2][1] = matrix[2][1] + matrix[2][0]
    matrix[2][0] = 0
    refuse(matrix, "column 0 of matrix is zero in some rows and positive in others")
    matrix = tampered()
    matrix[0][1], matrix[0][0] = -5, matrix[0][0] + matrix[0][1] + 5
    refuse(matrix, "non-negative weights, got -5")
    refuse(
        [[float(w) for w in row] for row in tampered()], "int64 weights .* got float64"
    )
    refuse([[TOTAL, TOTAL, TOTAL, TOTAL, TOTAL]], "row 0 of matrix must sum")
    refuse([[2**70]], "int64 weights .* got object")
    refuse([[1, 2], [3]], "must be a rectangular table")
    refuse([], "int64 weights")
    refuse([[]], "int64 weights")
    refuse("weights", "int64 weights")
    refuse(
        np.ones((1, 4097), dtype=np.int64),
        r"sides in \[1, 4096\], got int64 of shape \(1, 4097\)",
    )
