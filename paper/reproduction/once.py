"""The experiment `once`: the accuracy of classifiers from one message per person against the total ε."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paper.datasets import Dataset, load
from paper.reproduction.jobs import ONCE, Job, data_folder
from paper.reproduction.lines import Line, Results, Section, grouped, interval
from paper.reproduction.methods import Scale
from paper.reproduction.rivals import (
    CentralClassifier,
    ExactClassifier,
    predict_by_cohorts,
)
from sstq.learning import GradientHistograms, PrivateClassifier

ONCE_LABELS: Mapping[str, str] = {
    "groupunit": "GroupUnit, one message per person",
    "ball": "FrameUnit on the ball, one message per person",
    "privunitg": "PrivUnitG, softmax regression in cohorts",
    "sstq": "the paper's SSTQ, softmax regression in cohorts",
    "alone": "GroupUnit without any public data",
    "shuffled": "GroupUnit behind a shuffler, δ = 1e-6, one message",
    "shuffled-16": "GroupUnit behind a shuffler, δ = 1e-6, 16 messages",
    "central": "central Gaussian, δ = 1e-6 (trusted server)",
    "none": "the same linear method, no privacy",
    "logistic": "logistic regression on the same features, no privacy",
}
"""The labels of the methods, for people."""

_DELTA = 1e-6
_PUBLIC = ("none", "logistic")
_SHUFFLED = {"shuffled": 1, "shuffled-16": 16}
TRUST_METHODS = ("groupunit", *_SHUFFLED, "central", "none", "logistic")
"""The methods that differ only in whom people trust."""
# The mechanism, the rounds and the rate of the first round: the best of four for the training people at ε = 3.
_COHORTS = {"privunitg": ("privunitg", 5, 30.0), "sstq": ("sstq-optimized", 20, 10.0)}
# ε of the answers to the check of a classifier that was learned without privacy.
_NO_PRIVACY = 20.0


@dataclass(frozen=True)
class _Task:
    """A data set: how many of its training images are public, without their labels, and the cells of gradients."""

    title: str
    public: int
    cell: int = 4


_TASKS = {
    "digits": _Task("Digits", 300, cell=2),
    "fashion-mnist": _Task("Fashion-MNIST", 1000),
}


def once_jobs(scale: Scale) -> list[Job]:
    """Return one job per seed, ε and method; those without privacy have one ε."""
    private = [name for name in ONCE_LABELS if name not in _PUBLIC]
    jobs = []
    for seed in range(scale.seeds):
        asked = [
            (method, epsilon) for epsilon in scale.once_epsilons for method in private
        ]
        asked += [
            (name, epsilon)
            for epsilon in scale.once_small_epsilons
            for name in TRUST_METHODS
            if name in private
        ]
        asked += [(method, math.inf) for method in _PUBLIC]
        for method, epsilon in asked:
            jobs.append(
                Job(
                    f"{ONCE}{scale.once_dataset}",
                    method,
                    seed,
                    bits=0,
                    count=1,
                    epsilon=epsilon,
                )
            )
    return jobs


def _epsilon(job: Job) -> float:
    return math.inf if job.epsilon is None else job.epsilon


@lru_cache(maxsize=2)
def _load(dataset: str, folder: Path | None) -> Dataset:
    """The data set with features in the place of its images."""
    images = load(dataset, folder)
    features = GradientHistograms(images.image_shape, cell=_TASKS[dataset].cell)
    return replace(
        images,
        train_images=features(images.train_images),
        test_images=features(images.test_images),
    )


def run_once(job: Job, data: Path | None) -> dict[str, Any]:
    """Learn from everybody except the public examples, and test."""
    dataset = job.kind.removeprefix(ONCE)
    found = _load(dataset, data_folder(dataset, data))
    order = np.random.default_rng([job.seed, 16]).permutation(len(found.train_images))
    public, people = np.split(order, [_TASKS[dataset].public])
    start = time.perf_counter()
    if job.method in _COHORTS:
        accuracy, known = _train(job, found, public, people)
    elif job.method == "logistic":
        accuracy = _logistic(found, people)
        known = {"directions": found.train_images.shape[1]}
    else:
        accuracy, known = _learn(job, found, public, people)
    return {
        "accuracy": accuracy,
        "people": len(people),
        **known,
        "seconds": time.perf_counter() - start,
    }


class _Mapped:
    """Features computed beforehand, with the fixed cosines of their map."""

    def __init__(self, found: Dataset) -> None:
        self.cosines = GradientHistograms(
            found.image_shape, cell=_TASKS[found.name].cell
        ).cosines

    def transform(self, X: Any) -> Any:
        return X


def _classifier(
    job: Job, found: Dataset, public: NDArray[np.int64]
) -> PrivateClassifier:
    options: dict[str, Any] = {
        "epsilon": job.epsilon,
        "classes": range(10),
        "random_state": job.seed,
        "features": _Mapped(found),
    }
    if job.method == "alone":
        return PrivateClassifier(**options)
    options["public"] = found.train_images[public]
    if job.method == "central":
        return CentralClassifier(**options)
    if job.method == "none":
        return ExactClassifier(**options | {"epsilon": _NO_PRIVACY})
    if job.method in _SHUFFLED:
        options |= {
            "trust": "shuffler",
            "delta": _DELTA,
            "messages": _SHUFFLED[job.method],
        }
    return PrivateClassifier(blocks=1 if job.method == "ball" else None, **options)


def _learn(
    job: Job, found: Dataset, public: NDArray[np.int64], people: NDArray[np.int64]
) -> tuple[float, dict[str, Any]]:
    model = _classifier(job, found, public).fit(
        found.train_images[people], found.train_labels[people]
    )
    report = model.report(found.test_images, found.test_labels)
    known: dict[str, Any] = {
        "directions": report.directions,
        "predicted": report.predicted_accuracy,
    }
    if job.method in _SHUFFLED:
        known["local_epsilon"] = report.local_epsilon
    if job.method == "groupunit":
        known["message_bits"] = report.message_bits["main"]
    return report.true_accuracy, known


def _logistic(found: Dataset, people: NDArray[np.int64]) -> float:
    """The accuracy of plain logistic regression on all features, after a hundred steps at most."""
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has not converged to the last digit
        model = LogisticRegression(max_iter=100).fit(
            found.train_images[people], found.train_labels[people]
        )
    return float(model.score(found.test_images, found.test_labels))


def _train(
    job: Job, found: Dataset, public: NDArray[np.int64], people: NDArray[np.int64]
) -> tuple[float, dict[str, Any]]:
    """Softmax regression along the directions that a ball of as much noise is given."""
    model = PrivateClassifier(
        _epsilon(job),
        features=_Mapped(found),
        public=found.train_images[public],
        classes=range(10),
        blocks=1,
        random_state=job.seed,
    )
    model.question(len(people) // 10)
    asked = model.asked
    method, rounds, rate = _COHORTS[job.method]
    predicted = predict_by_cohorts(
        method,
        _epsilon(job),
        asked.vectors(found.train_images[people]),
        found.train_labels[people],
        10,
        asked.vectors(found.test_images),
        rounds=rounds,
        rate=rate,
        seed=job.seed,
    )
    right = predicted == found.test_labels
    return float(np.mean(right)), {"directions": asked.mechanism.dim}


_TEXT = """
Every person holds one image with its label and answers once, so the ε of the message is the person's total. {public:,}
other images are public, without labels. Features are histograms of gradients; in every run the number of directions is
chosen from private messages. The constants of the method were chosen by accuracy on training images of Fashion-MNIST
(docs/learning.md). {seeds} seed(s), each with its own public images and messages; real messages,
not a stand-in of their variance.

FrameUnit on the ball treats label and features as one vector. PrivUnitG and the paper's SSTQ train a softmax regression
along public directions, in cohorts that answer once; their rounds and rate are the best of four for the training people
at a total ε of 3, and they have an intercept where held-out training people gain by it, for which no ε accounts. The
central Gaussian needs a trusted server: its guarantee is (ε, 1e-6). Behind a shuffler the messages of each cohort are
mixed, slot by slot, before the server sees them. That is (ε, 1e-6)-private as well, if shuffler and server do not
collude. The last cohort's private answers predict the accuracy without any test data.
"""


def once_section(scale: Scale, results: Results) -> Section:
    """Write the accuracies by total ε and method."""
    lines = []
    curves = []
    groups = grouped(once_jobs(scale), lambda job: (_epsilon(job), job.method))
    for (epsilon, method), jobs in groups.items():
        found = [results[job] for job in jobs]
        remark = _remark(found)
        if method in _COHORTS:
            ours = [results[job] for job in groups[epsilon, "groupunit"]]
            remark = f"{remark} {_gap(ours, found)}"
        mean, half = interval([100 * result["accuracy"] for result in found])
        delta = _DELTA if method in ("central", *_SHUFFLED) else 0.0
        total = (
            "no privacy" if math.isinf(epsilon) else f"total ε = {epsilon:g} per person"
        )
        setting = f"{_TASKS[scale.once_dataset].title}, {total}" + (
            f" (δ = {delta:g})" if delta else ""
        )
        lines.append(
            Line(
                setting,
                method,
                ONCE_LABELS[method],
                mean,
                half,
                len(found),
                mean,
                remark=remark,
            )
        )
        ends = {"accuracy": mean, "accuracy_half_width": half, "seeds": len(found)}
        curves.append(
            {
                "dataset": scale.once_dataset,
                "method": method,
                "epsilon": epsilon,
                "delta": delta,
                **ends,
            }
        )
    text = _TEXT.format(public=_TASKS[scale.once_dataset].public, seeds=scale.seeds)
    return Section(
        "once",
        "One message per person, once",
        text,
        lines,
        ("once.png", "trust.png"),
        curves,
    )


def _gap(ours: list[Mapping[str, Any]], found: list[Mapping[str, Any]]) -> str:
    """How far GroupUnit is ahead with the same seeds."""
    seeds = zip(ours, found, strict=True)
    gaps = [100 * (one["accuracy"] - other["accuracy"]) for one, other in seeds]
    mean, half = interval(gaps)
    spread = f" ± {half:.1f}" if len(gaps) > 1 else ""
    return f"GroupUnit is ahead by {mean:.1f}{spread} points with the same seeds."


def _remark(found: list[Mapping[str, Any]]) -> str:
    def mean(name: str) -> float:
        return math.fsum(result[name] for result in found) / len(found)

    parts = [f"{mean('directions'):.0f} directions"]
    if "message_bits" in found[0]:
        parts.append(f"{mean('message_bits'):.0f} bits per person")
    if "local_epsilon" in found[0]:
        parts.append(f"a local ε of {mean('local_epsilon'):.3g} if the shuffler cheats")
    if "predicted" in found[0]:
        parts.append(f"{100 * mean('predicted'):.1f} % predicted privately")
    return ", ".join(parts) + "."
