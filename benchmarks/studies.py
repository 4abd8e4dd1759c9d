"""Studies: how many words are found, the error of a mean without a known range, and how often bands over time hold."""

import gzip
import importlib.util
import math
import os
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import sstq
from benchmarks.harness import (
    FULL,
    Remark,
    Result,
    benchmark,
    memory_of,
    run_python,
)
from benchmarks.ranges import (
    ranges,
    ranges_by_law,
    ranges_fresh,
    ranges_incomes,
    ranges_norms,
)
from sstq.studies import Words, smoothing

# The environment variable that names the parts to run, such as panels,strings.
ONLY = "SSTQ_BENCHMARK_ONLY"
INSTALL = "pip install wordfreq msgpack"
# Studies of 100,000 people; of a million there is one.
REPEATS = 5
WORDS_KNOWN = 10_000
# Panels: 8 questions of 10 categories; the drift per week, and jumps.
PERIODS = 52
CURVES = 150
CATEGORIES = 10
PER_QUESTION = 100_000 // PERIODS // 8
DRIFT = 0.0025
WEEK_ERROR = 0.044
JUMPS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.065, 0.08, 0.1, 0.125, 0.15, 0.2)
QUESTION_JUMPS = (0.05, 0.08, 0.12, 0.2)
QUESTION_REPEATS = 60

Floats = np.ndarray[Any, np.dtype[np.float64]]


@cache
def english() -> tuple[Any, Floats]:
    """English words and their shares, from the package wordfreq."""
    import msgpack

    found = importlib.util.find_spec("wordfreq")
    folder = (
        Path(next(iter(found.submodule_search_locations or ()))) if found else Path()
    )
    packed = gzip.decompress((folder / "data" / "large_en.msgpack.gz").read_bytes())
    shares: dict[str, float] = {}
    for rank, words in enumerate(msgpack.unpackb(packed, raw=False)[1:]):
        for word in (each.replace("'", "") for each in words):
            if word.isascii() and word.isalpha():
                shares[word] = shares.get(word, 0.0) + 10 ** (-rank / 100)
    ordered = sorted(shares, key=lambda word: -shares[word])
    weights = np.array([shares[word] for word in ordered])
    return np.array(ordered), weights / weights.sum()


def words_found(people: int, **options: Any) -> Iterator[Result]:
    """How many of the most frequent words are found, how many false ones, and the time."""
    words, shares = english()
    known = [str(word) for word in words[: options.pop("known", 0)]]
    top = []
    false = 0
    listed = 0
    seconds = []
    repeats = max(1, REPEATS * 100_000 // people)
    for seed in range(repeats):
        held = np.random.default_rng([seed, 1]).choice(words, people, p=shares)
        started = time.perf_counter()
        found = Words(candidates=known, **options).simulate(held, seed).words
        seconds.append(time.perf_counter() - started)
        frequent = words[shares >= 1e-3]
        top.append(
            [
                len(set(found) & set(some)) / len(some)
                for some in (words[:20], words[:50], frequent)
            ]
        )
        false += len(set(found) - set(held))
        listed += len(found)
    rates = 100 * np.mean(top, axis=0)
    name = f"{people:,} people, ε = {options['epsilon']:g}" + ", shuffled" * (
        "trust" in options
    )
    name += f", {len(known):,} known" * bool(known)
    for of, rate in zip(
        ("the top 20", "the top 50", "those held by 0.1 %"), rates, strict=True
    ):
        yield Result(
            f"words, {name}: found of {of}", float(rate), "%", f"{repeats} repeats"
        )
    yield Result(
        f"words, {name}: false of {listed} listed",
        100 * false / max(1, listed),
        "%",
        "",
        1.0,
        at_most=True,
    )
    spent = f"words, {name}: time of all cohorts, answers included"
    yield Result(spent, min(seconds), "s")


def million() -> Iterator[Result]:
    """What the server needs for a million messages of one study: seconds, those of all cores, and memory."""
    script = "from benchmarks.studies import learn_million; learn_million()"
    seconds, of_cores, megabytes = map(float, run_python("-c", script).split())
    name = "words, learning from a million messages, ε = 2"
    yield Result(f"{name}: time", seconds, "s", "", 60.0, at_most=True)
    yield Result(f"{name}: time of all cores", of_cores, "s")
    yield Result(f"{name}: peak memory", megabytes, "MB", "", 1000.0, at_most=True)


def learn_million() -> None:
    """Print what `million` measures, in a process of its own; the answers of each cohort are there beforehand."""
    words, shares = english()
    rng = np.random.default_rng(1)
    people = 1_000_000
    study = Words(epsilon=2.0)
    seconds = of_cores = 0.0
    while study.cohorts_left:
        size = next(iter(study.cohort_sizes(people).values()))
        people -= size
        study.question(size)
        messages = study.asked.encode(rng.choice(words, size, p=shares), rng)
        before = (time.perf_counter(), time.process_time())
        study.learn(messages)
        seconds += time.perf_counter() - before[0]
        of_cores += time.process_time() - before[1]
    print(seconds, of_cores, memory_of(what="VmHWM") / 1e6)


def scenes(rng: np.random.Generator) -> Iterator[tuple[str, Floats, int | None]]:
    """Curves around a tenth, and the period of their jump."""
    weeks = np.arange(PERIODS)
    drift = np.cumsum(rng.normal(0, DRIFT, PERIODS))
    yield "constant", np.full(PERIODS, 0.1), None
    yield "drift", 0.1 + drift, None
    yield "slope", 0.1 + 0.003 * weeks, None
    yield "season", 0.15 + 0.05 * np.sin(weeks / 8.3), None
    for jump in JUMPS:
        at = int(rng.integers(13, 39))
        yield f"jump of {100 * jump:g} points", 0.1 + drift + jump * (weeks >= at), at
    yield "step of 5 points", 0.1 + 0.05 * (weeks >= at), at


def hits_told(truth: Floats, rng: np.random.Generator) -> Floats:
    """The shares of a category that people tell, by the exact law of hits."""
    rates = sstq.Frequencies(CATEGORIES, 2.0).sets.rates
    holders = rng.binomial(PER_QUESTION, np.clip(truth, 0, 1))
    hits = rng.binomial(holders, rates.own)
    hits += rng.binomial(PER_QUESTION - holders, rates.other)
    return np.asarray((hits / PER_QUESTION - rates.other) / rates.gap)


def oracle(raw: Floats, error: float, jump: float) -> Floats:
    """The best estimate of who knows the drift and the size of the jump, but not its period."""
    later = np.arange(1, PERIODS)
    same = np.ones(PERIODS - 1)
    models = smoothing._Models(
        (DRIFT / error) ** 2 * same, later, (jump / error) ** 2 * same, 0 * same
    )
    mean, spread, fit = smoothing._filtered(raw / error, np.ones(PERIODS), models)
    weight = np.exp(fit - fit.max())
    mean, _ = smoothing._smoothed(mean, spread, models)
    return np.asarray(mean @ weight / weight.sum() * error)


class Held:
    """Squared errors of curves, and how often their bands of 95 % hold, everywhere and within two weeks of a jump."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, float, float, float]] = []

    def add(
        self, curve: Any, truth: Floats, at: int | None, best: Floats | None = None
    ) -> None:
        """Count a curve."""
        inside = np.abs(curve.value - truth) < 1.96 * curve.stderr
        near = float(np.mean(inside[at - 2 : at + 3])) if at else math.nan
        knowing = math.nan if best is None else float(np.mean((best - truth) ** 2))
        squared = float(np.mean((curve.value - truth) ** 2))
        self.rows.append((squared, float(np.mean(inside)), near, knowing))

    def results(self, name: str, most: float | None) -> Iterator[Result]:
        """What was counted."""
        squared, inside, near, knowing = np.mean(self.rows, axis=0)
        goal = {} if most is None else {"target": most, "at_most": True}
        count = f"{len(self.rows)} curves"
        yield Result(
            f"{name}: error", 100 * math.sqrt(squared), "points", count, **goal
        )
        if math.isfinite(knowing):
            of = f"{name}: error if drift and size were known"
            yield Result(of, 100 * math.sqrt(knowing), "points")
        yield Result(f"{name}: bands that hold", 100 * float(inside), "%", "", 93.0)
        if math.isfinite(near):
            yield Result(f"{name}: bands next to it", 100 * float(near), "%", "", 90.0)


def panels() -> Iterator[Result]:
    """One share among 10 categories, ε = 2, with normal noise of 4.4 points per week, and by the exact law of hits."""
    rates = sstq.Frequencies(CATEGORIES, 2.0).sets.rates
    exact = math.sqrt(rates.variance_at(0.1) / PER_QUESTION)
    yield Result("panel, one week by itself: error", 100 * exact, "points")
    for error in (WEEK_ERROR, exact):
        rng = np.random.default_rng(3)
        found: dict[str, Held] = {}
        for _ in range(CURVES):
            for name, truth, at in scenes(rng):
                raw = (
                    truth + rng.normal(0, error, PERIODS)
                    if error == WEEK_ERROR
                    else hits_told(truth, rng)
                )
                jump = float(name.split()[2]) / 100 if at else 0.0
                best = oracle(raw, error, jump) if at else None
                curve = smoothing.smooth(raw, np.full(PERIODS, error))
                found.setdefault(name, Held()).add(curve, truth, at, best)
        for name, held in found.items():
            most = 1.0 if name == "drift" else 1.4 if "jump" in name else None
            yield from held.results(f"panel, {100 * error:.1f} a week, {name}", most)


def questions() -> Iterator[Result]:
    """All 10 categories of a question, from real messages: one takes its jump from another, or from all others."""
    mechanism = sstq.Frequencies(CATEGORIES, 2.0)
    error = math.sqrt(mechanism.sets.rates.variance_at(0.1) / PER_QUESTION)
    weeks = np.arange(PERIODS)
    for name, giving in (("one other", [1]), ("all others", [*range(1, CATEGORIES)])):
        for jump in QUESTION_JUMPS:
            rng = np.random.default_rng(4)
            moving = Held()
            others = Held()
            for _ in range(QUESTION_REPEATS):
                at = int(rng.integers(13, 39))
                shares = np.tile([0.1, 0.3, *[0.075] * 8], (PERIODS, 1))
                shares += np.cumsum(rng.normal(0, DRIFT, shares.shape), axis=0)
                moved = np.where(weeks >= at, jump, 0.0)
                part = np.maximum(shares[:, giving], 1e-3)
                shares[:, 0] += moved
                shares[:, giving] -= part * (moved / part.sum(axis=1))[:, None]
                shares = np.maximum(shares, 1e-3)
                shares /= shares.sum(axis=1, keepdims=True)
                raw = [_week(mechanism, week, rng) for week in shares]
                errors = np.full((CATEGORIES, PERIODS), error)
                curves = smoothing.smooth_together(np.transpose(raw), errors)
                for place, curve in enumerate(curves):
                    kept = others if place not in (0, *giving) else moving
                    if place == 0 or kept is others:
                        kept.add(curve, shares[:, place], at)
            given = f"panel, {100 * jump:g} points from {name}"
            yield from moving.results(f"{given}, the share that gains", None)
            if others.rows:
                yield from others.results(f"{given}, shares that stay", None)


def _week(
    mechanism: sstq.Frequencies, shares: Floats, rng: np.random.Generator
) -> Floats:
    held = rng.choice(CATEGORIES, PER_QUESTION, p=shares)
    messages = mechanism.encode(held, rng=rng)
    return np.asarray(mechanism.aggregator().update(messages).mean().value)


def strings() -> Iterator[Result | Remark]:
    """English words at several ε, with and without a dictionary, and behind a shuffler."""
    if (
        importlib.util.find_spec("wordfreq") is None
        or importlib.util.find_spec("msgpack") is None
    ):
        yield Remark(f"no English words: {INSTALL}")
        return
    if FULL:
        yield from words_found(1_000_000, epsilon=1.0, trust="shuffler")
        yield from million()
    for people in (1_000_000, 100_000) if FULL else (100_000,):
        for epsilon in (2.0, 4.0):
            yield from words_found(people, epsilon=epsilon, known=WORDS_KNOWN)
            yield from words_found(people, epsilon=epsilon)


@benchmark
def studies() -> Iterator[Result | Remark]:
    """Words that were found, means without a range, curves over time; all at one total ε per person."""
    for part in (
        panels,
        questions,
        ranges,
        ranges_by_law,
        ranges_fresh,
        ranges_incomes,
        ranges_norms,
        strings,
    ):
        if part.__name__ in os.environ.get(ONLY, part.__name__).split(","):
            yield from part()
