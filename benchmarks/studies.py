"""Studies: how many words are found, the error of a mean without a known range, and how often bands over time hold."""

import gzip
import importlib.util
import math
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import sstq
from benchmarks.harness import FULL, Remark, Result, benchmark
from sstq.studies import Range, Words
from sstq.studies.smoothing import smooth

INSTALL = "pip install wordfreq msgpack"
REPEATS = 3
WORDS_KNOWN = 10_000
# People, dimensions and scales of the ranges, and ε.
PEOPLE, DIM, SCALES, EPSILONS = 20_000, 40, (1e-6, 1.0, 1e6), (1.0, 3.0, 6.0)
PERIODS, CURVES = 52, 100
PER_QUESTION = 100_000 // PERIODS // 8

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
    top, false, listed, seconds = [], 0, 0, []
    for seed in range(REPEATS):
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
            f"words, {name}: found of {of}", float(rate), "%", f"{REPEATS} repeats"
        )
    yield Result(
        f"words, {name}: false of {listed} listed",
        100 * false / max(1, listed),
        "%",
        "",
        1.0,
        at_most=True,
    )
    yield Result(f"words, {name}: time of all cohorts", min(seconds), "s")


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


def best_known(vectors: Floats, epsilon: float) -> float:
    """The squared error with the best clip in hindsight."""
    norms, truth = np.linalg.norm(vectors, axis=1), vectors.mean(axis=0)
    noise = (
        sstq.FrameUnit(DIM, epsilon, clients=len(vectors))
        .typical_error(len(vectors))
        .variance
    )
    errors = []
    for clip in np.quantile(
        norms[norms > 0],
        [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99, 0.999, 1],
    ):
        clipped = vectors * np.minimum(1, clip / np.maximum(norms, 1e-300))[:, None]
        errors.append(
            float(np.sum((clipped.mean(axis=0) - truth) ** 2))
            + noise * float(clip) ** 2
        )
    return min(errors)


def ranges() -> Iterator[Result]:
    """The error over that of the best clip in hindsight, by shape and ε, and how often regions hold."""
    ratios: dict[tuple[str, float], list[float]] = {}
    held = []
    for seed, scale in enumerate(SCALES):
        for name, vectors in shapes(np.random.default_rng([seed, 2])):
            for epsilon in EPSILONS:
                found = Range(DIM, epsilon).simulate(vectors * scale, seed)
                error = float(
                    np.linalg.norm(found.mean - (vectors * scale).mean(axis=0))
                )
                ratio = error / math.sqrt(best_known(vectors * scale, epsilon))
                ratios.setdefault((name, epsilon), []).append(ratio)
                held.append(error <= found.region(0.95).radius)
    medians = {case: float(np.median(several)) for case, several in ratios.items()}
    for (name, epsilon), ratio in medians.items():
        yield Result(
            f"range, {name}, ε = {epsilon:g}: error over that of the best clip",
            ratio,
            "×",
        )
    yield Result(
        "range, median of all",
        float(np.median(list(medians.values()))),
        "×",
        "",
        1.3,
        at_most=True,
    )
    yield Result("range, worst", max(medians.values()), "×", "", 2.2, at_most=True)
    yield Result(
        f"range, regions that hold, of {len(held)}",
        100 * float(np.mean(held)),
        "%",
        "",
        93.0,
    )


def scenes(rng: np.random.Generator) -> Iterator[tuple[str, Floats, int | None]]:
    """Curves around a tenth, and the period of their jump."""
    weeks = np.arange(PERIODS)
    drift = np.cumsum(rng.normal(0, 0.0025, PERIODS))
    yield "constant", np.full(PERIODS, 0.1), None
    yield "drift", 0.1 + drift, None
    yield "slope", 0.1 + 0.003 * weeks, None
    yield "season", 0.15 + 0.05 * np.sin(weeks / 8.3), None
    for jump in (0.01, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2):
        at = int(rng.integers(13, 39))
        yield (
            f"drift and a jump of {100 * jump:g} points",
            0.1 + drift + jump * (weeks >= at),
            at,
        )


def panels() -> Iterator[Result]:
    """The error of a share among 10 categories, ε = 2, by the exact law of hits; and how often bands of 95 % hold."""
    rates = sstq.Frequencies(10, 2.0).sets.rates
    rng = np.random.default_rng(3)
    error = np.full(PERIODS, math.sqrt(rates.variance_at(0.1) / PER_QUESTION))
    found: dict[str, list[list[float]]] = {}
    for _ in range(CURVES):
        for name, curve, at in scenes(rng):
            truth = np.clip(curve, 0, 1)
            holders = rng.binomial(PER_QUESTION, truth)
            hits = rng.binomial(holders, rates.own) + rng.binomial(
                PER_QUESTION - holders, rates.other
            )
            smoothed = smooth((hits / PER_QUESTION - rates.other) / rates.gap, error)
            inside = np.abs(smoothed.value - truth) < 1.96 * smoothed.stderr
            near = np.mean(inside[at - 2 : at + 3]) if at else 1.0
            found.setdefault(name, []).append(
                [np.mean((smoothed.value - truth) ** 2), np.mean(inside), near]
            )
    yield Result("panel, one week by itself: error", 100 * float(error[0]), "points")
    for name, rows in found.items():
        squared, inside, near = np.mean(rows, axis=0)
        most = 1.4 if "jump" in name else 1.0
        goal = {"target": most, "at_most": True} if "drift" in name else {}
        yield Result(
            f"panel, {name}: error",
            100 * math.sqrt(squared),
            "points",
            f"{CURVES} curves",
            **goal,
        )
        yield Result(
            f"panel, {name}: bands that hold", 100 * float(inside), "%", "", 93.0
        )
        if "jump" in name:
            yield Result(
                f"panel, {name}: bands next to the jump",
                100 * float(near),
                "%",
                "",
                90.0,
            )


@benchmark
def studies() -> Iterator[Result | Remark]:
    """Words that were found, means without a range, curves over time; all at one total ε per person."""
    yield from panels()
    yield from ranges()
    if (
        importlib.util.find_spec("wordfreq") is None
        or importlib.util.find_spec("msgpack") is None
    ):
        yield Remark(f"no English words: {INSTALL}")
        return
    for epsilon in (2.0, 4.0):
        yield from words_found(100_000, epsilon=epsilon)
        yield from words_found(100_000, epsilon=epsilon, known=WORDS_KNOWN)
        if FULL:
            yield from words_found(1_000_000, epsilon=epsilon)
    if FULL:
        yield from words_found(1_000_000, epsilon=1.0, trust="shuffler")
