"""Means without a known range: shapes of vectors, the best clip in hindsight, and studies by the law of hits."""

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

import sstq
from benchmarks.harness import Result
from sstq.aggregation import Estimate
from sstq.studies import NormQuestion, Range, bins
from sstq.studies.bins import BINS, bin_of
from sstq.studies.facts import estimate_to_dict

# People, dimensions and scales of the ranges, and ε.
PEOPLE = 20_000
DIM = 40
SCALES = (1e-6, 1.0, 1e6)
EPSILONS = (1.0, 3.0, 6.0)
# So many studies per shape and ε, of which there are 36, from real messages, and by the law of hits.
STUDIES = {"range": 28, "range, held out": 9, "range, fresh": 9}
STUDIES_BY_LAW = 9
# Studies of incomes per ε.
INCOMES = 16
# Studies whose norms alone are told, by the law of hits, per shape and ε.
NORMS_BY_LAW = 80
# What a false bin would do to the error.
RUINED = 10
# Histograms per ε and number of people, and how many errors above are looked for.
HISTOGRAMS = 1000
CHANCE = 4.0

Floats = np.ndarray[Any, np.dtype[np.float64]]


def shapes(rng: np.random.Generator) -> Iterator[tuple[str, Floats]]:
    """Twelve shapes of vectors."""
    noise = rng.standard_normal((PEOPLE, DIM)) / math.sqrt(DIM)
    along = np.ones(DIM) / math.sqrt(DIM)
    for offset in (0.0, 0.2, 1.0, 5.0):
        yield f"normal, offset {offset:g}", noise + offset * along
    yield "Pareto 1.5", noise * (rng.pareto(1.5, PEOPLE) + 0.3)[:, None] + along
    yield "Pareto 2.5", noise * (rng.pareto(2.5, PEOPLE) + 0.3)[:, None] + along / 2
    yield (
        "log-normal columns",
        np.exp(rng.standard_normal((PEOPLE, DIM))) / math.sqrt(DIM),
    )
    yield (
        "Student's t, 2 degrees",
        rng.standard_t(2, (PEOPLE, DIM)) / math.sqrt(DIM) + along / 2,
    )
    yield "sphere", noise / np.linalg.norm(noise, axis=1, keepdims=True)
    yield (
        "nine of ten zero",
        np.where(rng.random(PEOPLE) < 0.1, 1.0, 0.0)[:, None] * (noise + along),
    )
    yield (
        "log-normal scale",
        (noise + along) * np.exp(rng.standard_normal(PEOPLE))[:, None],
    )
    yield (
        "5 % at 30 times",
        noise * np.where(rng.random(PEOPLE) < 0.05, 30.0, 1.0)[:, None] + along,
    )


def held_out_shapes(rng: np.random.Generator) -> Iterator[tuple[str, Floats]]:
    """Twelve more, for which nothing was chosen, though their errors were seen when the shares of people were."""
    noise = rng.standard_normal((PEOPLE, DIM)) / math.sqrt(DIM)
    along = np.ones(DIM) / math.sqrt(DIM)
    part = rng.random(PEOPLE)[:, None]
    yield "two clusters at +3 and -3", noise + np.where(part < 0.5, 3, -3) * along
    yield "20 % at 10 times, aligned", (noise + along) * np.where(part < 0.2, 10.0, 1.0)
    yield (
        "2 % at 100 times, cancelling",
        noise * np.where(part < 0.02, 100.0, 1.0) + along,
    )
    yield "uniform scale", (noise + along) * part
    spread = np.exp(rng.standard_normal(PEOPLE))[:, None]
    yield "log-normal scale, cancelling", noise * spread + 0.3 * along
    zipf = 1 / np.arange(1, DIM + 1)
    yield "one-hot, Zipf", np.eye(DIM)[rng.choice(DIM, PEOPLE, p=zipf / zipf.sum())]
    heavy = rng.pareto(2, PEOPLE)[:, None] + 0.3
    yield (
        "half zero, half Pareto 2",
        np.where(part < 0.5, 0.0, heavy) * (noise + along / 2),
    )
    yield (
        "Student's t, 1.5 degrees",
        rng.standard_t(1.5, (PEOPLE, DIM)) / math.sqrt(DIM) + along,
    )
    three = np.arange(DIM) < 3
    yield "three columns of forty", three * (1 + rng.standard_normal((PEOPLE, DIM)))
    yield (
        "10 % at 8 times, partly aligned",
        noise * np.where(part < 0.1, 8.0, 1.0) + along * np.where(part < 0.1, 3.0, 0.5),
    )
    yield (
        "scales 1, 10 and 100, cancelling",
        noise * np.where(part < 0.7, 1.0, np.where(part < 0.95, 10.0, 100.0))
        + 0.5 * along,
    )
    yield (
        "1 % in units 100 times as small",
        (0.2 * noise + along) * np.where(part < 0.01, 100.0, 1.0),
    )


def fresh_shapes(rng: np.random.Generator) -> Iterator[tuple[str, Floats]]:
    """Six more, which were invented after everything was chosen."""
    noise = rng.standard_normal((PEOPLE, DIM)) / math.sqrt(DIM)
    along = np.ones(DIM) / math.sqrt(DIM)
    part = rng.random(PEOPLE)[:, None]
    yield (
        "8 % at 15 times, cancelling",
        noise * np.where(part < 0.08, 15.0, 1.0) + along,
    )
    yield (
        "3 % at 20 times, half aligned",
        noise + along * np.where(part < 0.03, 20.0, 1.0) * np.where(part < 0.01, -1, 1),
    )
    yield "30 % at 5 times, cancelling", noise * np.where(part < 0.3, 5.0, 1.0) + along
    yield "logistic", rng.logistic(0.3, 1, (PEOPLE, DIM)) / math.sqrt(DIM)
    yield "gamma columns", rng.gamma(0.3, 1, (PEOPLE, DIM)) / math.sqrt(DIM)
    yield "log-uniform scale, two decades", (noise + along / 2) * 100**part


SETS: dict[str, Callable[[np.random.Generator], Iterator[tuple[str, Floats]]]] = {
    "range": shapes,
    "range, held out": held_out_shapes,
    "range, fresh": fresh_shapes,
}


def clips(vectors: Floats) -> list[tuple[float, float]]:
    """Clips, and the squared error of the mean of all vectors that each costs without noise."""
    norms = np.linalg.norm(vectors, axis=1)
    truth = vectors.mean(axis=0)
    tried = np.quantile(
        norms[norms > 0],
        [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99, 0.999, 1],
    )
    factors = np.minimum(1, tried[:, None] / np.maximum(norms, 1e-300))
    lost = factors @ vectors / len(vectors) - truth
    return [*zip(tried.tolist(), np.sum(lost**2, axis=1).tolist(), strict=True)]


def best_known(tried: list[tuple[float, float]], epsilon: float) -> float:
    """The squared error with the best of these clips, chosen in hindsight."""
    noise = sstq.FrameUnit(DIM, epsilon, clients=PEOPLE).typical_error(PEOPLE).variance
    return min(noise * clip**2 + lost for clip, lost in tried)


def from_messages(vectors: Floats, epsilon: float, seed: int) -> Any:
    """The result of a study of people with these vectors, from real messages."""
    return Range(DIM, epsilon).simulate(vectors, seed)


@cache
def noise_of_one(epsilon: float) -> float:
    """The squared error of one message with a clip of 1."""
    mechanism = sstq.FrameUnit(DIM, epsilon, clients=PEOPLE)
    return PEOPLE * float(mechanism.typical_error(PEOPLE).total)


def by_law(vectors: Floats, epsilon: float, seed: int) -> Any:
    """The same by the law of hits: no messages, but binomial hits of each bin, and means with normal noise."""
    rng = np.random.default_rng([seed, 5])
    study = Range(DIM, epsilon)
    left = rng.permutation(len(vectors))
    while study.cohorts_left:
        size = next(iter(study.cohort_sizes(len(left)).values()))
        study.question(size)
        study._keep(_told(study, vectors[left[:size]], rng))
        left = left[size:]
    return study.result


def _told(study: Any, vectors: Floats, rng: np.random.Generator) -> dict[str, Any]:
    """What a cohort with these vectors tells."""
    question = study.asked
    people = len(vectors)
    moved = vectors - np.array(question.centre) if question.centre else vectors
    norms = np.linalg.norm(moved, axis=1)
    if isinstance(question, NormQuestion):
        held = np.bincount(bin_of(norms), minlength=BINS)
        shares, error = told_shares(held, study.options["epsilon"], rng)
        return {"people": people, "shares": shares.tolist(), "error": error}
    clip = question.mechanism.clip
    factors = np.minimum(1, clip / np.maximum(norms, 1e-300))
    noise = clip * math.sqrt(noise_of_one(study.options["epsilon"]) / people / DIM)
    mean = factors @ moved / people + rng.normal(0, noise, DIM)
    estimate = Estimate(mean, np.full(DIM, noise), people)
    facts = {"people": people, "clip": clip, "error2": DIM * noise**2}
    return facts | estimate_to_dict(estimate)


def told_shares(
    held: Any, epsilon: float, rng: np.random.Generator
) -> tuple[Floats, float]:
    """The shares of bins held by so many people, with the error of an empty one."""
    people = int(np.sum(held))
    rates = sstq.Frequencies(BINS, epsilon).sets.rates
    hits = rng.binomial(held, rates.own) + rng.binomial(people - held, rates.other)
    shares = (hits / people - rates.other) / rates.gap
    return shares, math.sqrt(rates.variance_at(0.0) / people)


def ranges() -> Iterator[Result]:
    """A thousand studies, and a third of it of other shapes, from real messages."""
    for name in ("range", "range, held out"):
        yield from errors(name, name, from_messages, STUDIES[name])


def ranges_fresh() -> Iterator[Result]:
    """Studies of shapes that nobody had seen, from real messages."""
    yield from errors(
        "range, fresh", "range, fresh", from_messages, STUDIES["range, fresh"]
    )


def ranges_by_law() -> Iterator[Result]:
    """Others by the law of hits, from other seeds."""
    for name in ("range", "range, held out"):
        yield from errors(f"{name}, by the law of hits", name, by_law, STUDIES_BY_LAW)


def ranges_incomes() -> Iterator[Result]:
    """Means of one number with a tail that nobody sees whole: exponent 1.8, so without a variance."""
    for epsilon in EPSILONS:
        off = []
        held = 0
        for seed in range(INCOMES):
            rng = np.random.default_rng([seed, 7])
            incomes = 20_000 * (1 + rng.pareto(1.8, PEOPLE))
            found = Range(1, epsilon).simulate(incomes[:, None], seed)
            truth = float(incomes.mean())
            off.append(float(found.mean[0]) / truth - 1)
            held += abs(found.mean[0] - truth) <= found.region(0.95).radius
        of = f"incomes, Pareto 1.8, ε = {epsilon:g}: error of the mean, median"
        ends = f"{100 * min(off):+.1f} to {100 * max(off):+.1f} %; {held} of {INCOMES} regions hold"
        yield Result(of, 100 * float(np.median(off)), "%", ends)


def ranges_norms() -> Iterator[Result]:
    """How often norms are sure and false, by the law of hits; and how often noise alone is a false bin."""
    rng = np.random.default_rng(6)
    told = list(shapes(np.random.default_rng([0, 2])))
    for epsilon in EPSILONS:
        unsure = 0
        false = 0
        for _, vectors in told:
            norms = bin_of(np.linalg.norm(vectors, axis=1))
            # no bin farther than a factor of 31 from the longest vector can be true
            limit = min(int(norms.max()) + 20, BINS)
            for _ in range(NORMS_BY_LAW):
                known = _norms_told(norms, epsilon, rng)
                unsure += not known.sure
                false += bool(bins.beyond(known.chosen)[limit] > 1e-3)
        studies = len(told) * NORMS_BY_LAW
        name = f"range, norms by the law of hits, ε = {epsilon:g}"
        yield Result(
            f"{name}: unsure in the end", unsure / studies, "", f"of {studies}"
        )
        of = f"{name}: a false bin"
        yield Result(of, false, "", f"of {studies}", 0, at_most=True)
    for epsilon in EPSILONS:
        for people in (180, 1200, 7200):
            yield from false_bins(epsilon, people)


def _norms_told(norms: Any, epsilon: float, rng: np.random.Generator) -> Any:
    """What the cohorts of a study tell of these norms."""
    study = Range(DIM, epsilon)
    left = rng.permutation(norms)
    while next(iter(study.weights)).startswith("norms"):
        size = next(iter(study.cohort_sizes(len(left)).values()))
        held = np.bincount(left[:size], minlength=BINS)
        shares, error = told_shares(held, epsilon, rng)
        study._keep({"people": size, "shares": shares.tolist(), "error": error})
        left = left[size:]
    return study._norms


def errors(
    label: str, which: str, study: Callable[..., Any], repeats: int
) -> Iterator[Result]:
    """The error over that of the best clip in hindsight, and how often regions hold."""
    ratios: dict[tuple[str, float], list[float]] = {}
    held = []
    first = 0 if study is from_messages else max(STUDIES.values())
    for seed in range(first, first + repeats):
        scale = SCALES[seed % len(SCALES)]
        for name, vectors in SETS[which](np.random.default_rng([seed, 2])):
            tried = clips(vectors)
            truth = vectors.mean(axis=0) * scale
            for epsilon in EPSILONS:
                found = study(vectors * scale, epsilon, seed)
                error = float(np.linalg.norm(found.mean - truth))
                ratio = error / (scale * math.sqrt(best_known(tried, epsilon)))
                ratios.setdefault((name, epsilon), []).append(ratio)
                held.append(error <= found.region(0.95).radius)
    for (name, epsilon), several in ratios.items():
        of = f"{label}, {name}, ε = {epsilon:g}: error over that of the best clip"
        yield Result(of, float(np.median(several)), "×", f"worst {max(several):.3g}")
    every = np.concatenate(list(ratios.values()))
    middle = float(np.median(every))
    count = f"{label}, median of {len(every)} studies"
    yield Result(count, middle, "×", "", 1.3, at_most=True)
    worst = max(float(np.median(several)) for several in ratios.values())
    yield Result(f"{label}, worst median", worst, "×", "", 2.2, at_most=True)
    ruined = int(np.sum(every > RUINED))
    of = f"{label}, studies ruined (above {RUINED} ×)"
    yield Result(of, ruined, "", "", 0, at_most=True)
    yield Result(
        f"{label}, regions that hold", 100 * float(np.mean(held)), "%", "", 93.0
    )


def false_bins(epsilon: float, people: int) -> Iterator[Result]:
    """How often noise alone is above what counts as sure, and a lower threshold to compare with theory."""
    rng = np.random.default_rng([people, int(epsilon)])
    known = bins._shapes()
    at_zero = np.where(np.arange(BINS) == 0, people, 0)
    for errors_above in (CHANCE, bins._SURE):
        found = 0
        for _ in range(HISTOGRAMS // 500):
            told = [told_shares(at_zero, epsilon, rng) for _ in range(500)]
            heights = np.array([shares for shares, _ in told])
            heights[:, 0] = 0.0
            skewness = bins.skewness(told[0][1], epsilon)
            least = known.least(told[0][1], skewness, errors_above)
            found += int(np.sum(np.any(heights @ known.shares.T > least, axis=1)))
        name = f"range, {people:,} people at ε = {epsilon:g}: noise above {errors_above:g} errors"
        yield Result(name, found / HISTOGRAMS, "", f"{found} of {HISTOGRAMS:,}")
        bound = chance_of_noise(epsilon, people, least)
        yield Result(f"{name}, bound by theory", bound, "")


def chance_of_noise(epsilon: float, people: int, least: Floats) -> float:
    """The sum over all shapes and places of the chance that binomial hits exceed this (Lugannani and Rice).

    The shapes at the middle stand for those at all places.
    """
    rates = sstq.Frequencies(BINS, epsilon).sets.rates
    known = bins._shapes()
    total = 0.0
    for row in range(BINS // 2, len(known.shares), BINS):
        shape = known.shares[row][known.shares[row] > 1e-12]
        sum_of_hits = people * (rates.other * shape.sum() + rates.gap * least[row])
        total += BINS * _tail(shape, people, rates.other, sum_of_hits)
    return total


def _tail(shape: Floats, people: int, rate: float, least: float) -> float:
    """The chance that binomial hits, times their shape, sum to so much."""

    def tilted(tilt: float) -> Floats:
        grown = rate * np.exp(tilt * shape)
        return np.asarray(grown / (1 - rate + grown))

    if people * shape.sum() <= least:
        return 0.0
    tilt = brentq(
        lambda one: people * float(shape @ tilted(one)) - least, 0.0, 50 / shape.max()
    )
    rates = tilted(tilt)
    cumulant = people * float(np.sum(np.log1p(rate * np.expm1(tilt * shape))))
    root = math.sqrt(2 * (tilt * least - cumulant))
    spread = tilt * math.sqrt(people * float(shape**2 @ (rates * (1 - rates))))
    density = math.exp(-(root**2) / 2) / math.sqrt(2 * math.pi)
    return float(ndtr(-root)) + density * (1 / spread - 1 / root)
