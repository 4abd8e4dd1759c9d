"""The frequencies of messages beside the integer weights: Pearson's χ² with an exact level.

The words that make the draw are random, all others are frozen, so that the outcomes have exactly the probabilities of
one case of the law, which `sstq.audit.encoder` finds. The distribution of χ² under the integers is simulated, not
approximated: with s simulations, p = (1 + those that are at least as large)/(s + 1), which is at most α with
probability at most α for any number of messages.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.audit.encoder import outcomes, situations
from sstq.checks import check_number
from sstq.chunks import row_chunks
from sstq.mechanisms import Mechanism
from sstq.randomness.secret import bit_source, channel_words

__all__ = ["SamplerTest", "sampler_test"]

Floats = NDArray[np.float64]

_SITUATIONS = 4
_CELLS = 4096
_CLASSES, _EXPECTED = 64, 10
# That many simulations beyond χ² are expected where p = α.
_BEYOND = 10
_ALPHA_MIN = 1e-5


@dataclass(frozen=True)
class SamplerTest:
    """How well the frequencies agree with the integers.

    Attributes:
        samples: how many messages were drawn.
        classes: how many classes of outcomes were counted.
        statistic: Pearson's χ², summed over the situations.
        p_value: the probability of at least that much, exact in the sense of a Monte Carlo test.
        alpha: the level.
    """

    samples: int
    classes: int
    statistic: float
    p_value: float
    alpha: float

    @property
    def passed(self) -> bool:
        """Whether the sampler may be the integers'; wrongly False with probability alpha at most."""
        return self.p_value > self.alpha


def sampler_test(
    mechanism: Mechanism, samples: int = 100_000, alpha: float = 1e-3, rng: int | None = None
) -> SamplerTest:
    """Test whether messages have the probabilities of the integer weights.

    Args:
        mechanism: one that is exact.
        samples: the messages to draw, over four vectors.
        alpha: the level of the test, at least 1e-5: the time that it takes grows as 1/alpha.
        rng: a seed to repeat the test; the operating system's randomness if not given.

    Examples:
        >>> import sstq
        >>> sampler_test(sstq.mechanism("vqsgd", dim=3, epsilon=1.0), samples=4000, rng=1).passed
        True
    """
    samples = check_number("samples", samples, 100, 10**9, integer=True)
    alpha = check_number("alpha", alpha, _ALPHA_MIN, 0.5)
    law, generator = mechanism.law(), np.random.default_rng(rng)
    source = bit_source(rng)
    tried = situations(mechanism, generator)
    chosen = [tried[int(number)] for number in generator.choice(len(tried), size=_SITUATIONS, replace=False)]
    each = samples // len(chosen)
    simulations = math.ceil(_BEYOND / alpha) - 1
    statistic, simulated, classes = 0.0, np.zeros(simulations), 0
    for situation in chosen:
        masses = outcomes(situation, law, _CELLS, generator)
        if masses is None:
            raise ValueError(f"{mechanism.name}: the encoder follows no case of its law; see check_encoder")
        draws = channel_words(source.words(each * len(law.words))).reshape(each, -1)
        counts = Counter(row.tobytes() for row in situation.encode(draws))
        expected, observed = _classes(masses, counts, each)
        statistic += float(_chi2(observed, expected))
        for part in row_chunks(simulations, len(expected)):
            drawn = generator.multinomial(each, expected / each, size=part.stop - part.start)
            simulated[part] += _chi2(drawn, expected)
        classes += len(expected)
    # Sums in another order may differ in the last digits.
    beyond = int(np.count_nonzero(simulated >= statistic * (1 - 1e-12)))
    return SamplerTest(each * len(chosen), classes, statistic, (1 + beyond) / (1 + simulations), alpha)


def _classes(masses: dict[bytes, Fraction], counts: Counter[bytes], count: int) -> tuple[Floats, Floats]:
    """Expected and observed numbers of neighbouring outcomes together, so that no class is too thin to count."""
    least = max(_EXPECTED, count / _CLASSES)
    expected, observed = [0.0], [0.0]
    total = sum(masses.values())
    for outcome, mass in masses.items():
        if expected[-1] >= least:
            expected.append(0.0)
            observed.append(0.0)
        expected[-1] += float(mass / max(total, 1)) * count
        observed[-1] += counts[outcome]
    rest = count - sum(observed)
    if total < 1:
        return np.array([*expected, float(1 - total) * count]), np.array([*observed, rest])
    # Outcomes that the law does not know can only come from a broken encoder: they count where they hurt.
    observed[-1] += rest
    return np.array(expected), np.array(observed)


def _chi2(observed: NDArray[Any], expected: Floats) -> Floats:
    statistic: Floats = np.sum((observed - expected) ** 2 / expected, axis=-1)
    return statistic
