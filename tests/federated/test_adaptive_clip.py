"""A clip that follows the norms by one private bit per answer."""

import math

import numpy as np
import pytest

import sstq
from sstq.accounting import price
from sstq.federated.adaptive_clip import AdaptiveClip, answer_price


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 3.0, 8.0])
def test_the_bit_is_exactly_private(epsilon):
    adaptive = AdaptiveClip(epsilon=epsilon)
    own, other = adaptive.channel.own, adaptive.channel.other
    assert own > other
    assert math.log(own / other) <= epsilon + 1e-15
    assert adaptive.channel.privacy_loss() <= adaptive.price
    assert adaptive.price == epsilon


def test_the_share_is_estimated_without_bias(seed):
    """40,000 bits with a true share of 0.3; the step is within 6 standard errors, so this fails once in 5e8 runs."""
    adaptive, count = AdaptiveClip(quantile=0.0, epsilon=1.0, rate=1.0), 40_000
    norms = np.where(np.arange(count) < 0.3 * count, 0.5, 2.0)
    ones = int(adaptive.bits(norms, 1.0, rng=seed).sum())
    share = -math.log(adaptive.next_clip(1.0, ones, count))
    assert abs(share - 0.3) < 6 / (2 * math.sqrt(count) * math.tanh(0.5))


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_the_clip_finds_the_quantile(quantile, seed):
    """Norms are uniform on [0, 1], so that the quantile is its own value.

    With 2,000 bits at ε = 2 a share has a standard error of at most 0.0147. A step of rate 0.2 multiplies the distance
    of log-clip from its fixed point by about 1 − 0.2·q; what remains of the noise has a standard deviation of about
    0.0147·√(0.2/(2q)), at most 0.0104 in log-clip at q = 0.2. Seven of these are 0.073; 0.1 is allowed: below 1e-11.
    """
    rng = np.random.default_rng(seed)
    adaptive, clip = AdaptiveClip(quantile, epsilon=2.0), 0.05
    for _ in range(250):
        norms = rng.uniform(size=2000)
        bits = adaptive.bits(norms, clip, rng)
        clip = adaptive.next_clip(clip, int(bits.sum()), len(bits))
    assert abs(math.log(clip / quantile)) < 0.1


def test_steps_are_bounded_whatever_the_noise():
    adaptive = AdaptiveClip(epsilon=0.01)
    assert adaptive.next_clip(1.0, 1, 1) == pytest.approx(math.exp(-0.1))
    assert adaptive.next_clip(1.0, 0, 1) == pytest.approx(math.exp(0.1))
    assert adaptive.next_clip(1.0, 0, 0) == 1.0
    assert adaptive.next_clip(1e100, 0, 1) == 1e100


def test_without_privacy_the_bits_are_the_truth():
    assert AdaptiveClip(0.5, rate=1.0).next_clip(1.0, 75, 100, private=False) == pytest.approx(math.exp(-0.25))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.9, 8.0])
@pytest.mark.parametrize("bit", [0.1, 0.05, 0.29])
def test_an_answer_never_costs_more_than_its_epsilon(epsilon, bit):
    adaptive = AdaptiveClip(epsilon=bit)
    mechanism = sstq.FrameUnit(10, adaptive.left_for_vectors(epsilon))
    assert price(mechanism) < answer_price(mechanism, adaptive) <= epsilon
    assert answer_price(mechanism, None) == price(mechanism)
    assert answer_price(sstq.mechanism("clean", dim=10), adaptive) == math.inf


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"quantile": 1.5}, "quantile must be"),
        ({"epsilon": 0.0}, "clip_epsilon must be"),
        ({"rate": -1}, "rate must be"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        AdaptiveClip(**arguments)
    with pytest.raises(ValueError, match=r"clip_epsilon must be less than epsilon = 0\.5"):
        AdaptiveClip(epsilon=0.5).left_for_vectors(0.5)
