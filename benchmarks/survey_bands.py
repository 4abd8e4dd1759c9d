"""Quantiles of a survey beside the square-wave mechanism, and how often 95 % bands hold in a thousand rounds."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import sstq
from benchmarks.harness import Result
from sstq.mechanisms.survey.estimates import NumberEstimate

Floats = np.ndarray[Any, np.dtype[np.float64]]

PEOPLE, EPSILONS, QUANTILE_ROUNDS = 10_000, (1.0, 2.0, 4.0), 20
DECILES = np.arange(1, 10) / 10
# The column of the census, and public bounds with bins.
NUMBERS = {
    "age": (0, sstq.Number(0, 100, bins=20)),
    "weeks worked": (39, sstq.Number(0, 52, bins=26)),
    "hourly wage": (5, sstq.Number(0, 5000, bins=25)),
}
ROUNDS, LEAST = 1000, 0.94


def square_wave(values: Floats, epsilon: float, bins: int, rng: np.random.Generator) -> Floats:
    """The shares of bins by the square-wave mechanism with EM and smoothing (Li and others, SIGMOD 2020).

    A value of [0, 1] is reported within ± b with density p, and anywhere else in [−b, 1 + b] with p/e^ε.
    """
    odds = math.exp(epsilon)
    b = (epsilon * odds - odds + 1) / (2 * odds * (odds - 1 - epsilon))
    near = rng.random(len(values)) < 2 * b * odds / (2 * b * odds + 1)
    # Beyond ± b there is a length of 1, cut in two by the wave.
    far = rng.random(len(values))
    sent = np.where(near, values + rng.uniform(-b, b, len(values)), np.where(far < values, far - b, far + b))
    ends, cells = np.linspace(-b, 1 + b, bins + 1), np.linspace(0, 1, bins + 1)
    middles = (cells[1:] + cells[:-1]) / 2
    overlap = np.minimum(ends[1:, None], middles + b) - np.maximum(ends[:-1, None], middles - b)
    chance = (np.maximum(overlap, 0.0) * (odds - 1) + (ends[1] - ends[0])) / (2 * b * odds + 1)
    counts, shares, last = np.histogram(sent, ends)[0], np.full(bins, 1 / bins), -math.inf
    for _ in range(10_000):
        likely = chance @ shares
        shares = shares * (chance.T @ (counts / likely))
        smooth = np.convolve(np.pad(shares, 1, mode="edge"), [0.25, 0.5, 0.25], mode="valid")
        shares = smooth / smooth.sum()
        found = float(counts @ np.log(likely))
        if found - last < 1e-3:
            break
        last = found
    return shares


def quantiles(census: Any) -> Iterator[Result]:
    """The mean absolute error of all deciles, in units of the range, with one question per survey."""
    for name, (column, question) in NUMBERS.items():
        people = np.random.default_rng(1).choice(len(census), size=PEOPLE, replace=False)
        values = census[column].to_numpy()[people].astype(np.float64).clip(question.low, question.high)
        truth = np.quantile(values, DECILES, method="inverted_cdf")
        wide = question.high - question.low
        for epsilon in EPSILONS:
            survey, errors, width = sstq.Survey(epsilon, {"x": question}), [], []
            for seed in range(QUANTILE_ROUNDS):
                sent = survey.encode({"x": values}, seed)
                estimate: Any = survey.aggregator().update(sent).mean()
                ours = [estimate["x"].quantile(share) for share in DECILES]
                shares = square_wave(
                    (values - question.low) / wide, epsilon, question.bins, np.random.default_rng(seed)
                )
                theirs = np.interp(DECILES, np.cumsum(shares), question.edges[1:])
                errors.append([np.abs(q - truth).mean() / wide for q in (np.array([q.value for q in ours]), theirs)])
                width.append(np.mean([q.high - q.low for q in ours]) / wide)
            own, peer = np.mean(errors, axis=0)
            spread = np.std(errors, axis=0, ddof=1) / math.sqrt(QUANTILE_ROUNDS)
            note = (
                f"± {spread[0]:.2g}; square wave {peer:.3g} ± {spread[1]:.2g}; 95 % bands are {np.mean(width):.3g} wide"
            )
            yield Result(
                f"deciles of {name}, ε = {epsilon:g}", own, "of the range", f"{note}; a bin {1 / question.bins:.3g}"
            )


@dataclass(frozen=True)
class Case:
    """A question, the shares of its categories with no answer as the last one, ε and the number of people."""

    name: str
    question: sstq.Choice | sstq.Number
    shares: Floats
    epsilon: float
    people: int

    def missed(self, rounds: int, seed: int) -> tuple[float, float]:
        """How often a band misses a truth anywhere, and how often nothing is told; people are new in every round."""
        rng, survey = np.random.default_rng(seed), sstq.Survey(self.epsilon, {"q": self.question})
        mechanism = survey.parts[0].mechanism
        truth = self.shares[:-1] / self.shares[:-1].sum()
        missed = unknown = 0
        for _ in range(rounds):
            codes = mechanism.encode(rng.choice(len(self.shares), self.people, p=self.shares), rng).column("code")
            sent = survey.messages_from_columns((codes.astype(np.int64),), None, True)
            estimate: Any = survey.aggregator().update(sent).mean()
            found = estimate["q"]
            bands = [(*found.interval(), truth)]
            if isinstance(found, NumberEstimate):
                bands = [(*found.cdf_band(), np.append(np.cumsum(truth)[:-1], 1.0))]
            missed += any(bool(np.any(low > true) | np.any(high < true)) for low, high, true in bands)
            unknown += bool(np.isnan(found.estimate).all())
        return missed / rounds, unknown / rounds


def cases() -> Iterator[Case]:
    """Skewed, tiny, empty and wide questions."""
    labels: Callable[[int], sstq.Choice] = lambda count: sstq.Choice(list(range(count)))  # noqa: E731
    bins: Callable[[int], sstq.Number] = lambda count: sstq.Number(0, 1, bins=count)  # noqa: E731
    for make, most in ((labels, 1000), (bins, 64)):
        skewed, one, wide = (np.zeros(11), np.zeros(9), np.zeros(most + 1))
        skewed[:10], skewed[10], one[0] = 0.9 * 0.5 ** np.arange(1, 11) / (1 - 0.5**10), 0.1, 1.0
        wide[:most] = 1 / np.arange(1, most + 1)
        few, three = np.append(np.full(8, 0.05 / 8), 0.95), np.array([0.6, 0.3, 0.05, 0.05])
        for name, shares, epsilon, people in (
            ("skewed", skewed, 1.0, 10_000), ("skewed", skewed, 4.0, 10_000),
            ("tiny", three, 1.0, 20), ("tiny", three, 4.0, 20), ("tiny", three, 2.0, 4),
            ("one label for all", one, 2.0, 1000), ("5 % with an answer", few, 4.0, 2000),
            (f"{most} categories", wide / wide.sum(), 2.0, 20_000),
        ):  # fmt: skip
            yield Case(f"{make(2).type}, {name}", make(len(shares) - 1), shares, epsilon, people)


def coverage() -> Iterator[Result]:
    """How often the bands of all shares, or of the distribution function, hold everywhere at once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases():
            missed, unknown = case.missed(ROUNDS, 1)
            what = f"coverage: {case.name}, {case.people:,} people, ε = {case.epsilon:g}"
            yield Result(what, 1 - missed, "of rounds", f"{unknown:.0%} told nothing" if unknown else "", LEAST)
