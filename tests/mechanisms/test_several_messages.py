"""Several messages per person: slots, frames, prices and errors; the contract suite has cases of its own."""

import json
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.stats import chi2

import sstq
from sstq.accounting import (
    BudgetExhausted,
    Ledger,
    ledger_price,
    price,
    shuffled_epsilon,
)
from sstq.checks import RANGES
from sstq.mechanisms.answers import encode_files
from sstq.mechanisms.base import LocalReport

EVERY = [
    sstq.FrameUnit(8, 2.0, frames=4),
    sstq.GroupUnit(8, 2.0, groups=3, frames=4),
    sstq.SSTQ(8, 2.0, bits=2),
    sstq.SSTQ(8, 2.0, bits=2, channel="metric-aware"),
    sstq.VqSGD(8, 2.0),
    sstq.SQKR(8, 2.0, k=2),
    sstq.SQKR(8, 2.0, variant="dense"),
]
X = np.random.default_rng(0).standard_normal((50, 8)) / 4
MECHANISM = sstq.FrameUnit(8, 2.0, frames=2**20, messages=5)


def test_one_message_is_as_before():
    for one in EVERY:
        explicit = one.replace(messages=1)
        assert "messages" not in json.loads(one.to_json())
        assert (explicit.digest(), explicit.bundle_epsilon) == (one.digest(), 2.0)
        with pytest.raises(ValueError, match="has unknown or inconsistent fields"):
            sstq.from_json(json.dumps(json.loads(one.to_json()) | {"messages": 1}))


def test_slots_are_contiguous_and_every_message_is_drawn_anew():
    messages = MECHANISM.encode(X, rng=3)
    assert len(messages) == 250
    rng = np.random.default_rng(3)
    alone = MECHANISM.replace(messages=1)
    for slot in range(5):
        part = messages[50 * slot : 50 * slot + 50]
        assert part.to_bytes() == alone.encode(X, rng).to_bytes()
    # 250 draws from 2^20 frames: two or more of the pairs coincide with probability 4.4e-4; five or more with 2e-10.
    assert len(np.unique(messages.column("frame"))) > 245


def test_files_have_the_slots_one_after_the_other(tmp_path):
    np.save(tmp_path / "a.npy", X[:20])
    np.save(tmp_path / "b.npy", X[20:])
    people = MECHANISM.input.open([tmp_path / name for name in ("a.npy", "b.npy")])
    seen = []
    report = LocalReport()
    batches = list(
        encode_files(MECHANISM, people, 3, report=report, advance=seen.append)
    )
    assert (
        sstq.Messages.concatenate(batches).to_bytes()
        == MECHANISM.encode(X, rng=3).to_bytes()
    )
    assert sum(seen) == 250
    own = LocalReport()
    MECHANISM.encode(X, rng=3, report=own)
    assert report == own
    assert own.vectors == 50


def test_the_number_of_messages_has_a_range():
    for wrong, one in product((0, 4097, 1.5, True), EVERY):
        with pytest.raises(ValueError, match="messages must be an integer in"):
            one.replace(messages=wrong)
    assert RANGES["messages"][1] == 4096


def test_the_epsilon_of_a_bundle_is_rounded_up():
    """It is the least double that is not below the exact product; rounding to nearest fails in 4 of 10 cases."""
    below = 0
    for messages, epsilon in product(
        [1, 2, 3, 5, 7, 11, 16, 23, 48, 63], [0.1, 0.3, 1 / 3, 0.7, 1.1, 2.3, 3.0, 4.7]
    ):
        exact = messages * Fraction(epsilon)
        stated = sstq.VqSGD(2, epsilon, messages=messages).bundle_epsilon
        below += Fraction(messages * epsilon) < exact
        assert Fraction(math.nextafter(stated, 0.0)) < exact <= Fraction(stated)
    assert below > 10


def test_ledgers_charge_the_bundle(tmp_path):
    assert MECHANISM.bundle_epsilon == 10.0
    assert price(MECHANISM) == ledger_price(MECHANISM) == 10.0
    # A third is rounded down to a double, and a sum of doubles could be: the price is never less.
    thirds = sstq.FrameUnit(8, 1 / 3, messages=7)
    assert 0 <= Fraction(price(thirds)) - 7 * Fraction(thirds.epsilon) < 1e-15
    ledger = Ledger(tmp_path / "ledger", 12.0)
    ledger.spend(ledger_price(MECHANISM), "first")
    assert ledger.remaining == 2.0
    with pytest.raises(ValueError, match=r"."):
        ledger.spend(ledger_price(MECHANISM), "second")
    capped = Ledger(tmp_path / "capped", 100.0, round_cap=9.0)
    with pytest.raises(BudgetExhausted):
        capped.spend(ledger_price(MECHANISM), "first")


def test_more_messages_are_as_more_people():
    """In expected and typical errors, in the estimates, and for the shuffler."""
    # whose typical error is that of a smaller frame
    large = sstq.SSTQ(5000, 2.0, bits=2)
    for one in (*EVERY, large):
        several = one.replace(messages=5)
        error = several.typical_error(30)
        same = one.typical_error(150)
        assert (error.bias2, error.variance) == pytest.approx(
            (same.bias2, same.variance)
        )
        assert several.bundle_epsilon == 10.0
    for one in EVERY:
        several = one.replace(messages=5)
        groups = one.input.trial(np.random.default_rng(0), 50).get("groups")
        error, same = (m.expected_mse(X, groups=groups) for m in (several, one))
        assert (error.bias2, 5 * error.variance) == pytest.approx(
            (same.bias2, same.variance)
        )
        aggregator = several.aggregator().update(
            several.encode(X, rng=1, groups=groups)
        )
        assert (aggregator.mean().count, aggregator.mean().people) == (250, 50)
        assert shuffled_epsilon(several, 10_000, 1e-6) == shuffled_epsilon(
            one, 10_000, 1e-6, messages=5
        )


def test_more_messages_are_as_more_people_but_for_the_bias():
    several = MECHANISM.replace(frames=4)
    one = MECHANISM.replace(frames=4, messages=1)
    error = several.expected_mse(X[0], clients=30)
    same = one.expected_mse(X[0], clients=150)
    assert (error.bias2, error.variance) == pytest.approx((same.bias2, same.variance))
    assert several.frames_for(1000) == one.frames_for(5000) > one.frames_for(1000)
    assert several.clients_allowed == one.clients_allowed // 5
    assert sstq.FrameUnit(8, 2.0, clients=1000, messages=5).frames == one.frames_for(
        5000
    )
    assert several.note(10**6)


def test_estimates_know_the_people():
    grouped = sstq.GroupUnit(8, 4.0, groups=3, frames=2**10, messages=4)
    labels = np.arange(50) % 3
    aggregator = grouped.aggregator().update(grouped.encode(X, rng=1, groups=labels))
    estimate = aggregator.mean()
    assert (estimate.count, estimate.people, estimate.messages) == (200, 50, 4)
    np.testing.assert_allclose(estimate.sums.reshape(-1), estimate.value * 50)
    np.testing.assert_allclose(estimate.sums_stderr.reshape(-1), estimate.stderr * 50)
    half = grouped.aggregator().update(grouped.encode(X, rng=1, groups=labels)[:90])
    assert half.mean().people == 22.5


@pytest.mark.slow
def test_standard_errors_are_of_the_mean_of_these_people(seed):
    """With false failures below 1e-8: the noise has at least half as many directions as there are coordinates."""
    dim = 16
    rounds = 24
    mechanism = sstq.FrameUnit(dim, 3.0, frames=8, messages=8, frame_size=256)
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((60, dim))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    squares = []
    stated = []
    for number in range(rounds):
        own = mechanism.with_seed(seed + number)
        aggregator = own.aggregator().update(own.encode(x, rng))
        estimate = aggregator.mean()
        squares.append(np.sum((estimate.value - x.mean(axis=0)) ** 2))
        stated.append(np.sum(estimate.stderr**2))
    # A message has the variance e² and what people differ by, at most 1, which are both in the standard errors.
    least = (noise := mechanism.replace(messages=1).typical_error().variance) / (
        noise + 1
    )
    directions = rounds * dim / 2
    assert chi2.ppf(5e-9, directions) / directions * least < np.mean(squares) / np.mean(
        stated
    )
    assert np.mean(squares) / np.mean(stated) < chi2.isf(5e-9, directions) / directions


def test_rows_inside_can_be_given():
    given = sstq.FrameUnit(8, 2.0, inside=10)
    assert given.choice.inside == 10
    assert given.typical_error().total > sstq.FrameUnit(8, 2.0).typical_error().total
    best = sstq.FrameUnit(8, 2.0)
    assert best.replace(inside=best.choice.inside) == best
    assert (
        sstq.from_json(given.to_json())
        == given
        == eval(repr(given), {"FrameUnit": sstq.FrameUnit})  # noqa: S307
    )
    # What was read from JSON has all options, this one as well; None chooses anew.
    read = sstq.from_json(given.to_json())
    assert read.replace(epsilon=3.0).choice.inside == 10
    assert read.replace(epsilon=3.0, inside=None) == sstq.FrameUnit(8, 3.0)
    assert sstq.GroupUnit(8, 2.0, groups=3, blocks=3, inside=7).choice.inside == 7
    for wrong in (0, 257, 2.5, "many"):
        with pytest.raises(
            ValueError, match=r"inside must be an integer in \[1, 256\]"
        ):
            sstq.FrameUnit(8, 2.0, inside=wrong)
