"""Pooled estimates: the least variance, and error bars that hold."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

import sstq
from benchmarks.errors import estimates, held, population
from sstq.aggregation import Estimate

ROUNDS = 300


def an_estimate(value=0.0, stderr=0.1, dim=4, **options):
    return Estimate(np.full(dim, value), np.full(dim, stderr), **({"count": 1000} | options))


def test_weights_are_inverse_variances():
    pooled = sstq.pool([an_estimate(1.0, 0.1), an_estimate(2.0, 0.2, count=50, simulated=True, note="few frames")])
    assert pooled.value == pytest.approx(np.full(4, 1.2))
    assert pooled.stderr == pytest.approx(np.full(4, (1 / (1 / 0.01 + 1 / 0.04)) ** 0.5))
    assert (pooled.count, pooled.simulated, pooled.estimator, pooled.note) == (1050, True, "pool", "few frames")


def test_people_are_counted_by_their_messages():
    assert sstq.pool([an_estimate(count=60, messages=3), an_estimate(count=50)]).people == pytest.approx(70)


def test_one_estimate_is_itself():
    alone = an_estimate(1.0, 0.1, frame_bias=0.1, whole_bias=0.1, frames="a", bias_directions=3, directions=2.0)
    pooled = sstq.pool([alone])
    assert pooled.value == pytest.approx(alone.value)
    assert pooled.stderr == pytest.approx(alone.stderr)
    assert pooled.region().radius == pytest.approx(alone.region().radius)
    assert pooled.region().half_width == pytest.approx(alone.region().half_width)


def test_biases_of_the_same_frames_add_up():
    one = an_estimate(0.0, 0.1, frame_bias=0.12, whole_bias=0.12, frames="a", bias_directions=3)
    other, same = replace(one, frames="b"), replace(one)
    assert sstq.pool([one, other]).frame_bias == pytest.approx(0.12 / 2**0.5)
    assert sstq.pool([one, same]).frame_bias == pytest.approx(0.12)
    # Where the scatter of frames shows the bias, what two estimates have in common is still not in it.
    shown = [replace(part, frame_bias=0.0, terms=64) for part in (one, same)]
    assert sstq.pool(shown).frame_bias == pytest.approx(0.12 / 2**0.5)


def test_estimates_on_one_frame_are_known_by_it():
    def found(seed, **options):
        mechanism = sstq.FrameUnit(8, 3.0, frame_seed=seed, **options)
        aggregator = mechanism.aggregator()
        aggregator.update(mechanism.encode(np.full((20, 8), 0.3), rng=1))
        return aggregator.mean()

    assert found(1).frames == found(1, clip=2.0).frames != found(2).frames
    assert found(1, frames=4).frames == found(1, frames=8).frames != found(1).frames


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([], "one or more"),
        ([np.zeros(4)], "got ndarray at 0"),
        ([an_estimate(), an_estimate(dim=5)], "same dimension, got 5 at 1 and 4 at 0"),
        ([an_estimate(stderr=np.nan, count=1)], "two or more messages"),
        ([an_estimate(stderr=0.0)], "positive standard errors, got a total of 0.0 at 0"),
        ([an_estimate()] * 2, "different messages, got the same one twice, at 1"),
        ([sstq.pool([an_estimate()])], "pool all of them in one call"),
    ],
)
def test_what_cannot_be_pooled_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        sstq.pool(wrong)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanisms",
    [
        (sstq.SSTQ(8, 1.0), sstq.SSTQ(8, 4.0, clip=2.0)),
        (sstq.FrameUnit(8, 8.0), sstq.SSTQ(8, 6.0)),
        (sstq.FrameUnit(4, 12.0), sstq.FrameUnit(4, 8.0)),
        (sstq.FrameUnit(8, 3.0, frames=64), sstq.FrameUnit(8, 2.0)),
    ],
    ids=str,
)
def test_pooled_regions_hold_the_mean(mechanisms, seed):
    """Regions of 95 % hold at least 94 %, with false failures below 2e-7 per case."""
    people, rng = population("alike", mechanisms[0].dim), np.random.default_rng(seed)
    streams = [estimates(mechanism, people, 300, rng) for mechanism in mechanisms]
    pooled = (sstq.pool(parts) for parts in zip(*streams, strict=True))
    assert min(held(pooled, people.vectors[0], ROUNDS)) >= binom.ppf(1e-7, ROUNDS, 0.94)


@pytest.mark.slow
def test_two_cohorts_on_one_frame_err_alike(seed):
    """As above, with one frame seed for both: nearly all of the error is a bias that both have."""
    people, rng = population("alike", 4), np.random.default_rng(seed)
    cohorts = sstq.FrameUnit(4, 8.0), sstq.FrameUnit(4, 7.0)

    def rounds():
        while True:
            shared = int(rng.integers(1 << 62))
            parts = []
            for mechanism in (cohort.with_seed(shared) for cohort in cohorts):
                messages = mechanism.encode(np.broadcast_to(people.vectors, (300, 4)), rng=rng)
                parts.append(mechanism.aggregator().update(messages).mean())
            yield sstq.pool(parts)

    assert min(held(rounds(), people.vectors[0], ROUNDS)) >= binom.ppf(1e-7, ROUNDS, 0.94)
