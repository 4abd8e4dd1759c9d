"""Classifiers from one message per person on tables that nobody chose for them: `python -m paper learn`.

The tables come from Debian's r-cran-mlbench and r-cran-ggplot2, and from scikit-learn. A tenth of the people are public
without labels, at most 1,000; a fifth test, at most 10,000; all others answer once. Nothing is tuned here: the form of
the discriminant is chosen by private answers, and both forms are shown beside the choice.
"""

from __future__ import annotations

import gzip
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.learning import PrivateClassifier
from sstq.learning.features import unit_rows

LIBRARY = Path("/usr/lib/R/site-library")
_MOST_PUBLIC, _MOST_TESTED = 1000, 10_000

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
        raise ImportError("tables of R need rdata and pandas: pip install rdata pandas") from error
    warnings.filterwarnings("ignore", "Unknown encoding", module="rdata")
    return rdata


def _mlbench(name: str, target: str) -> Callable[[Path], Table]:
    def read(library: Path) -> Table:
        return _columns(_r_files().read_rda(library / "mlbench" / "data" / f"{name}.rda")[name], target)

    return read


def _diamonds(library: Path) -> Table:
    """R's lazy data: an index of (place, length) in a file of zlib blocks, each behind four bytes of its length."""
    import pandas as pd

    rdata, folder = _r_files(), library / "ggplot2" / "data"
    index = rdata.conversion.convert(rdata.parser.parse_data(gzip.decompress((folder / "Rdata.rdx").read_bytes())))
    place, length = (int(number) for number in index["variables"]["diamonds"])
    block = (folder / "Rdata.rdb").read_bytes()[place : place + length]
    found = rdata.conversion.convert(rdata.parser.parse_data(zlib.decompress(block[4:])))
    return _columns(pd.DataFrame(found), "cut")


def _digits(_: Path) -> Table:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return images, labels


TABLES: Mapping[str, Callable[[Path], Table]] = {
    "shuttle": _mlbench("Shuttle", "Class"),
    "diamonds": _diamonds,
    "satellite": _mlbench("Satellite", "classes"),
    "letters": _mlbench("LetterRecognition", "lettr"),
    "digits": _digits,
}


@lru_cache(maxsize=1)
def _split(name: str, seed: int, library: Path) -> tuple[Any, Any, list[NDArray[np.int64]], float]:
    """The table, its split into test, public rows and people, and the test accuracy of logistic regression."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = TABLES[name](library)
    order = np.random.default_rng(seed).permutation(len(X))
    tested, public = min(_MOST_TESTED, len(X) // 5), min(_MOST_PUBLIC, len(X) // 10)
    test, known, people = np.split(order, [tested, tested + public])
    plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)).fit(X[people], y[people])
    return X, y, [test, known, people], float(plain.score(X[test], y[test]))


def learn_table(name: str, epsilon: float, seed: int, library: Path = LIBRARY) -> dict[str, Any]:
    """Learn from a table once; accuracies are on people who did not answer.

    Raises:
        FileNotFoundError: if the table's package is not installed.
    """
    from sklearn.metrics import balanced_accuracy_score

    X, y, (test, known, people), plain = _split(name, seed, library)
    model = PrivateClassifier(epsilon, public=X[known], classes=np.unique(y).tolist(), random_state=seed).fit(
        X[people], y[people]
    )
    course, report, said = model._course, model.report_, model.predict(X[test])
    rows = course.main.unit_features(unit_rows(course.features(X[test])))
    forms: dict[str, float] = {
        form: float(np.mean(model.classes_[found.scores(rows).argmax(axis=1)] == y[test]))
        for form, found in course.discriminants.items()
    }
    _, counts = np.unique(y[test], return_counts=True)
    return {
        "table": name,
        "people": len(people),
        "epsilon": epsilon,
        "seed": seed,
        "majority": float(counts.max() / len(test)),
        "logistic": plain,
        **forms,
        "chosen": report.form,
        "accuracy": float(np.mean(said == y[test])),
        "balanced": float(balanced_accuracy_score(y[test], said)),
        "predicted": report.predicted_accuracy,
        "predicted_stderr": report.accuracy_stderr,
        "useful": report.useful,
    }


def learn_tables(epsilons: tuple[float, ...], seeds: int, library: Path = LIBRARY) -> Iterator[dict[str, Any]]:
    """Learn from all tables."""
    for name in TABLES:
        for seed in range(seeds):
            for epsilon in epsilons:
                yield learn_table(name, epsilon, seed, library)
