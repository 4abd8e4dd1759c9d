"""How often 95 % intervals of shares, numbers, accuracies and means by group hold, and how fair predictions are.

Every cell is simulated with new people in each round; SSTQ_BENCHMARK_FULL=1 takes five times as many rounds.
"""

import csv
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import sstq
from benchmarks.harness import FULL, Result, benchmark
from sstq.learning import PrivateClassifier
from sstq.learning.class_answers import ClassAnswers
from sstq.mechanisms.frequencies import FrequencyEstimate
from sstq.mechanisms.survey.question_estimates import NumberEstimate
from sstq.randomness.secret import bit_source

Floats = np.ndarray[Any, np.dtype[np.float64]]
Round = Callable[[np.random.Generator], bool | None]
"""Whether the bands of one round hold; None if they tell nothing."""

RECORD = Path("bands.csv")
LEAST = 0.93
ROUNDS, MANY = (500, 2000) if FULL else (100, 400)


def shares() -> Iterator[tuple[str, int, Round]]:
    """The ball and the box of Frequencies: counts of messages are drawn from their law."""
    for categories, epsilon, people in itertools.product(
        (2, 3, 5, 7), (1.0, 4.0), (30, 5000)
    ):
        mechanism = sstq.Frequencies(categories, epsilon)
        sets = mechanism.sets
        rates = mechanism.sets.rates
        truth = 1 / np.arange(1, categories + 1)
        truth /= truth.sum()
        held = sets.hold(np.arange(sets.codes), np.arange(categories))
        law = np.where(held, *mechanism.draw.probabilities) @ truth
        law /= law.sum()

        def hold(
            rng: np.random.Generator, kept: Any = (people, law, held, rates, truth)
        ) -> tuple[bool, bool]:
            count, chances, holds, known, wanted = kept
            found, errors = known.shares(rng.multinomial(count, chances) @ holds, count)
            named = {
                "own": known.own,
                "other": known.other,
                "directions": len(wanted) - 1,
            }
            region = FrequencyEstimate(found, errors, count, **named).region()
            inside = bool(np.all(np.abs(found - wanted) <= region.half_width))
            return bool(np.linalg.norm(found - wanted) <= region.radius), inside

        where = f"k = {categories}, ε = {epsilon:g}, n = {people:,}"
        yield f"frequencies, ball: {where}", MANY, lambda rng, hold=hold: hold(rng)[0]
        yield f"frequencies, box: {where}", MANY, lambda rng, hold=hold: hold(rng)[1]


def numbers() -> Iterator[tuple[str, int, Round]]:
    """The band of a number's distribution function, 10 % without an answer."""
    for bins, epsilon, people in itertools.product(
        (10, 22, 64), (1.0, 4.0, 6.0), (30, 100, 600)
    ):
        kinds = {
            "beta": np.diff(stats.beta(2, 5).cdf(np.linspace(0, 1, bins + 1))),
            "skewed": 0.6 ** np.arange(bins) / np.sum(0.6 ** np.arange(bins)),
        }
        for kind, held in kinds.items():
            mechanism = sstq.Frequencies(bins + 1, epsilon)
            question = sstq.Number(0, 1, bins=bins)
            chances = np.append(0.9 * held, 0.1)
            truth = np.append(np.cumsum(held)[:-1], 1.0)
            hold = partial(asked, mechanism, question, chances, truth, people)
            yield (
                f"number, {kind}, {bins} bins, ε = {epsilon:g}, n = {people:,}",
                MANY,
                hold,
            )


def asked(
    mechanism: sstq.Frequencies,
    question: Any,
    chances: Floats,
    truth: Floats,
    people: int,
    rng: np.random.Generator,
) -> bool | None:
    """Whether one question's band or intervals hold everywhere, where these are the chances of its categories."""
    labels = rng.choice(len(chances), people, p=chances)
    aggregator = mechanism.aggregator().update(mechanism.encode(labels, rng))
    found = question._result("x", [aggregator.mean()], aggregator)
    if np.isnan(found.estimate).any():
        return None
    is_number = isinstance(found, NumberEstimate)
    low, high = found.cdf_band() if is_number else found.interval()
    return bool(np.all((low <= truth + 1e-12) & (high >= truth - 1e-12)))


def few_answers() -> Iterator[tuple[str, int, Round]]:
    """Shares, bands and means where hardly anybody has an answer, and most of them one: told by luck in many rounds."""
    number = sstq.Number(0, 3, bins=3)
    mean = sstq.Mean("x").within({"x": number})
    for answered, (epsilon, people) in itertools.product(
        (0.03, 0.1), ((1.0, 500), (1.0, 4000), (6.0, 60))
    ):
        for kind, question, shares in (
            ("choice", sstq.Choice(["a", "b", "c"]), [0.98, 0.01, 0.01]),
            ("number", number, [0.98, 0.01, 0.01]),
            ("mean", mean, [0.97, 0.03]),
        ):
            mechanism = sstq.Frequencies(len(shares) + 1, epsilon)
            chances = np.append(answered * np.array(shares), 1 - answered)
            truth = {
                "choice": np.array(shares),
                "number": np.append(np.cumsum(shares)[:-1], 1.0),
                "mean": 3 * np.array(shares[:1]),
            }[kind]
            hold = partial(asked, mechanism, question, chances, truth, people)
            yield (
                f"{kind}, {answered:.0%} with an answer, ε = {epsilon:g}, n = {people:,}",
                MANY,
                hold,
            )


def classes() -> Iterator[tuple[str, int, Round]]:
    """The accuracy of the more frequent one of two classes, 95 % of whom a classifier is right about."""
    for epsilon, people in itertools.product((1.0, 3.0, 6.0, 12.0), (30, 150)):
        mechanism = sstq.Frequencies(4, epsilon)

        def hold(
            rng: np.random.Generator, kept: Any = (mechanism, people)
        ) -> bool | None:
            inner, count = kept
            outcomes = rng.choice(4, count, p=[0.03, 0.57, 0.16, 0.24])
            estimate = inner.aggregator().update(inner.encode(outcomes, rng)).mean()
            law = inner.sets.law
            told = ClassAnswers(tuple(estimate.value.tolist()), count, law)
            if np.isnan(told.accuracies[0]):
                return None
            low, high = told.interval(0.95)
            return bool(low[0] <= 0.95 <= high[0])

        yield f"accuracy by class, ε = {epsilon:g}, n = {people}", MANY, hold


def groups() -> Iterator[tuple[str, int, Round]]:
    """Means by group, of shares 1/2, 1/4, … or alike; 10 % without an answer."""
    cells = [
        (4, 2.0, 300),
        (2, 6.0, 30),
        (4, 6.0, 30),
        (2, 6.0, 100),
        (4, 6.0, 100),
        (10, 6.0, 100),
        (2, 4.0, 100),
    ]
    cells += [(10, 1.0, 20_000), (20, 1.0, 20_000), (20, 2.0, 20_000)]
    for (count, epsilon, people), even in itertools.product(cells, (False, True)):
        own = np.ones(count) if even else 0.5 ** np.arange(1, count + 1)
        chances = np.append(np.repeat(own / own.sum() * 0.45, 2), 0.1)
        held = np.array(
            [place + place % 3 for place in range(2 * count)], dtype=np.float64
        )
        asked = {
            "g": sstq.Choice(list(range(count))),
            "x": sstq.Number(0, 2.0 * count + 2),
            "q": sstq.By("g", "x"),
        }
        survey = sstq.Survey(
            epsilon, asked, weights={"g": 1e-9, "x": 1e-9, "q": 1e9}, people=people
        )
        records = survey.input.read(
            {
                "g": [*np.repeat(np.arange(count), 2).tolist(), None],
                "x": [*held.tolist(), None],
            }
        )
        truth = held.reshape(count, 2).mean(axis=1)

        def hold(
            rng: np.random.Generator,
            kept: Any = (survey, records, chances, truth, people),
        ) -> bool | None:
            made, rows, drawn, wanted, number = kept
            who = rows[rng.choice(len(drawn), number, p=drawn)]
            low, high = (
                made.aggregator()
                .update(made.encode_slots(who, bit_source(rng), None, 1))
                .mean()["q"]
                .interval()
            )
            if np.isnan(low).all():
                return None
            return not bool(np.any((low > wanted) | (high < wanted)))

        kind = "alike" if even else "halving"
        yield (
            f"by, {count} groups {kind}, ε = {epsilon:g}, n = {people:,}",
            MANY if people < 1000 else ROUNDS,
            hold,
        )


def predictions(record: Any) -> Iterator[Result]:
    """The mean of predicted less true accuracy, over the error that is printed."""
    for people, classes, epsilon in (
        (3000, 5, 1.0),
        (10_000, 10, 1.0),
        (10_000, 3, 3.0),
    ):
        off = []
        printed = []
        for seed in range(ROUNDS):
            rng = np.random.default_rng(seed)
            y = rng.integers(classes, size=people + 2500)
            X = (
                rng.standard_normal((len(y), 10))
                + rng.standard_normal((classes, 10))[y]
            )
            model = PrivateClassifier(epsilon, public=X[:500], random_state=seed).fit(
                X[2500:], y[2500:]
            )
            off.append(
                model.report_.predicted_accuracy - model.score(X[500:2500], y[500:2500])
            )
            printed.append(model.report_.accuracy_stderr)
        bias = np.mean(off) / np.mean(printed)
        error = np.std(off, ddof=1) / math.sqrt(ROUNDS) / np.mean(printed)
        what = f"predicted accuracy, {classes} classes, ε = {epsilon:g}, n = {people:,}"
        record.writerow([what, ROUNDS, ROUNDS, f"{bias:.3f}"])
        yield Result(
            what,
            abs(bias),
            "of the printed error",
            f"± {error:.2g}",
            0.25 + 2 * error,
            at_most=True,
        )


@benchmark
def bands() -> Iterator[Result]:
    """Bands of shares, numbers and means by group, of the rounds that tell anything; predicted accuracies."""
    with (
        RECORD.open("w", newline="", encoding="utf-8") as file,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        record = csv.writer(file, lineterminator="\n")
        record.writerow(["cell", "rounds", "told", "held"])
        cells = (shares(), numbers(), few_answers(), classes(), groups())
        for what, rounds, hold in itertools.chain(*cells):
            rng = np.random.default_rng(1)
            told = [
                held for held in (hold(rng) for _ in range(rounds)) if held is not None
            ]
            share = float(np.mean(told)) if told else math.nan
            record.writerow([what, rounds, len(told), f"{share:.4f}"])
            file.flush()
            yield Result(
                what,
                share,
                "of rounds",
                f"{rounds - len(told)} of {rounds} rounds told nothing",
                LEAST,
            )
        yield from predictions(record)
