"""Quantiles of a survey beside the square-wave mechanism, and how often 95 % bands hold in a thousand rounds."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import sstq
from benchmarks.harness import Result
from sstq.mechanisms.survey.question_estimates import NumberEstimate
from sstq.randomness.secret import bit_source

Floats = np.ndarray[Any, np.dtype[np.float64]]

PEOPLE = 10_000
EPSILONS = (1.0, 2.0, 4.0)
QUANTILE_ROUNDS = 20
DECILES = np.arange(1, 10) / 10
# The column of the census, and public bounds with bins.
NUMBERS = {
    "age": (0, sstq.Number(0, 100, bins=20)),
    "weeks worked": (39, sstq.Number(0, 52, bins=26)),
    "hourly wage": (5, sstq.Number(0, 5000, bins=25)),
}
ROUNDS = 1000
LEAST = 0.94


def square_wave(
    values: Floats, epsilon: float, bins: int, rng: np.random.Generator
) -> Floats:
    """The shares of bins by the square-wave mechanism with EM and smoothing (Li and others, SIGMOD 2020).

    A value of [0, 1] is reported within ± b with density p, and anywhere else in [−b, 1 + b] with p/e^ε.
    """
    odds = math.exp(epsilon)
    b = (epsilon * odds - odds + 1) / (2 * odds * (odds - 1 - epsilon))
    near = rng.random(len(values)) < 2 * b * odds / (2 * b * odds + 1)
    # Beyond ± b there is a length of 1, cut in two by the wave.
    far = rng.random(len(values))
    sent = np.where(
        near,
        values + rng.uniform(-b, b, len(values)),
        np.where(far < values, far - b, far + b),
    )
    ends = np.linspace(-b, 1 + b, bins + 1)
    cells = np.linspace(0, 1, bins + 1)
    middles = (cells[1:] + cells[:-1]) / 2
    overlap = np.minimum(ends[1:, None], middles + b) - np.maximum(
        ends[:-1, None], middles - b
    )
    chance = (np.maximum(overlap, 0.0) * (odds - 1) + (ends[1] - ends[0])) / (
        2 * b * odds + 1
    )
    counts = np.histogram(sent, ends)[0]
    shares = np.full(bins, 1 / bins)
    last = -math.inf
    for _ in range(10_000):
        likely = chance @ shares
        shares = shares * (chance.T @ (counts / likely))
        smooth = np.convolve(
            np.pad(shares, 1, mode="edge"), [0.25, 0.5, 0.25], mode="valid"
        )
        shares = smooth / smooth.sum()
        found = float(counts @ np.log(likely))
        if found - last < 1e-3:
            break
        last = found
    return shares


def quantiles(census: Any) -> Iterator[Result]:
    """The mean absolute error of all deciles, in units of the range, with one question per survey."""
    for name, (column, question) in NUMBERS.items():
        people = np.random.default_rng(1).choice(
            len(census), size=PEOPLE, replace=False
        )
        values = (
            census[column]
            .to_numpy()[people]
            .astype(np.float64)
            .clip(question.low, question.high)
        )
        truth = np.quantile(values, DECILES, method="inverted_cdf")
        wide = question.high - question.low
        for epsilon in EPSILONS:
            survey = sstq.Survey(epsilon, {"x": question})
            errors = []
            width = []
            for seed in range(QUANTILE_ROUNDS):
                sent = survey.encode({"x": values}, seed)
                estimate: Any = survey.aggregator().update(sent).mean()
                ours = [estimate["x"].quantile(share) for share in DECILES]
                shares = square_wave(
                    (values - question.low) / wide,
                    epsilon,
                    question.bins,
                    np.random.default_rng(seed),
                )
                theirs = np.interp(DECILES, np.cumsum(shares), question.edges[1:])
                errors.append(
                    [
                        np.abs(q - truth).mean() / wide
                        for q in (np.array([q.value for q in ours]), theirs)
                    ]
                )
                width.append(np.mean([q.high - q.low for q in ours]) / wide)
            own, peer = np.mean(errors, axis=0)
            spread = np.std(errors, axis=0, ddof=1) / math.sqrt(QUANTILE_ROUNDS)
            note = (
                f"± {spread[0]:.2g}; square wave {peer:.3g} ± {spread[1]:.2g}; "
                f"95 % bands are {np.mean(width):.3g} wide"
            )
            yield Result(
                f"deciles of {name}, ε = {epsilon:g}",
                own,
                "of the range",
                f"{note}; a bin {1 / question.bins:.3g}",
            )


@dataclass(frozen=True)
class Case:
    """A question, the kinds of people that there are, how frequent each is, and what the question's truth is.

    The survey has other questions only where `By` names them; they are hardly ever drawn.
    """

    name: str
    questions: dict[str, sstq.Choice | sstq.MultiChoice | sstq.Number | sstq.By]
    kinds: dict[str, list[Any]]
    shares: Floats
    truth: Floats
    epsilon: float
    people: int

    def missed(self, rounds: int, seed: int) -> tuple[int, int]:
        """The rounds in which a band misses a truth anywhere, and those that tell nothing; people are new in each."""
        rng = np.random.default_rng(seed)
        asked = list(self.questions)[-1]
        weights = dict.fromkeys(self.questions, 1e-9) | {asked: 1e9}
        survey = sstq.Survey(
            self.epsilon, self.questions, weights=weights, people=self.people
        )
        records = survey.input.read(self.kinds)
        missed = unknown = 0
        for _ in range(rounds):
            rows = records[rng.choice(len(self.shares), self.people, p=self.shares)]
            sent = survey.encode_slots(rows, bit_source(rng), None, 1)
            result: Any = survey.aggregator().update(sent).mean()
            found = result[asked]
            if np.isnan(found.estimate).all():
                unknown += 1
                continue
            low, high = (
                found.cdf_band()
                if isinstance(found, NumberEstimate)
                else found.interval()
            )
            missed += bool(np.any(low > self.truth) | np.any(high < self.truth))
        return missed, unknown


def cases() -> Iterator[Case]:
    """Skewed, tiny, empty and wide questions; several choices; means by group."""
    for kind, most in (("choice", 1000), ("number", 64)):
        skewed = np.zeros(11)
        one = np.zeros(9)
        wide = np.zeros(most + 1)
        skewed[:10] = 0.9 * 0.5 ** np.arange(1, 11) / (1 - 0.5**10)
        skewed[10] = 0.1
        one[0] = 1.0
        wide[:most] = 1 / np.arange(1, most + 1)
        few = np.append(np.full(8, 0.05 / 8), 0.95)
        three = np.array([0.6, 0.3, 0.05, 0.05])
        for name, shares, epsilon, people in (
            ("skewed", skewed, 1.0, 10_000), ("skewed", skewed, 4.0, 10_000),
            ("tiny", three, 1.0, 20), ("tiny", three, 4.0, 20), ("tiny", three, 2.0, 4),
            ("one label for all", one, 2.0, 1000), ("5 % with an answer", few, 4.0, 2000),
            (f"{most} categories", wide / wide.sum(), 2.0, 20_000),
        ):  # fmt: skip
            labels = len(shares) - 1
            truth = shares[:-1] / shares[:-1].sum()
            question: Any = sstq.Choice(list(range(labels)))
            if kind == "number":
                question = sstq.Number(-0.5, labels - 0.5, bins=labels)
                truth = np.append(np.cumsum(truth)[:-1], 1.0)
            people_of = {"q": [*range(labels), None]}
            yield Case(
                f"{kind}, {name}",
                {"q": question},
                people_of,
                shares,
                truth,
                epsilon,
                people,
            )
    yield from _several_choices()
    yield from _by_group()


def _several_choices() -> Iterator[Case]:
    """Labels that nobody, few, half of the people and everybody with an answer chose; 10 % have none."""
    for labels, epsilon, people in (
        (2, 4.0, 20),
        (4, 1.0, 5000),
        (4, 4.0, 5000),
        (20, 2.0, 10_000),
    ):
        chosen = [list(range(1, labels)), [1], [1, 2][: labels - 1], None]
        shares = np.array([0.05, 0.45, 0.4, 0.1])
        marks = np.array(
            [[label in kind for label in range(labels)] for kind in chosen[:-1]]
        )
        question = {"q": sstq.MultiChoice(list(range(labels)))}
        truth = shares[:-1] @ marks / shares[:-1].sum()
        yield Case(
            f"multichoice, {labels} labels",
            question,
            {"q": chosen},
            shares,
            truth,
            epsilon,
            people,
        )


def _by_group() -> Iterator[Case]:
    """Two numbers per group, other ones in each; groups of the shares 1/2, 1/4, …; 10 % have no answer."""
    for groups, epsilon, people in (
        (2, 2.0, 50),
        (4, 1.0, 10_000),
        (4, 4.0, 2000),
        (10, 4.0, 20_000),
    ):
        own = 0.5 ** np.arange(1, groups + 1)
        shares = np.append(np.repeat(own / own.sum() * 0.45, 2), 0.1)
        numbers = [float(place + place % 3) for place in range(2 * groups)]
        questions: Any = {
            "g": sstq.Choice(list(range(groups))),
            "x": sstq.Number(0, 2.0 * groups + 2),
        }
        questions["q"] = sstq.By("g", "x")
        kinds = {
            "g": [*np.repeat(np.arange(groups), 2).tolist(), None],
            "x": [*numbers, None],
        }
        truth = np.array(numbers).reshape(groups, 2).mean(axis=1)
        yield Case(
            f"by, {groups} groups", questions, kinds, shares, truth, epsilon, people
        )


def coverage() -> Iterator[Result]:
    """How often the bands of a question hold everywhere at once, of the rounds that tell anything."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases():
            missed, unknown = case.missed(ROUNDS, 1)
            what = (
                f"coverage: {case.name}, {case.people:,} people, ε = {case.epsilon:g}"
            )
            held = 1 - missed / max(1, ROUNDS - unknown)
            yield Result(
                what,
                held,
                "of rounds",
                f"{unknown} of {ROUNDS} rounds told nothing",
                LEAST,
            )
