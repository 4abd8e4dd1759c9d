"""The demo: the paper's Figure 1 on handwritten digits, and digits learned from one private message per person.

The data are scikit-learn's 1,797 images of 8×8 pixels. 1,437 of them are split at random, image by image: three fifths
are held by people who teach, a fifth by people who check, and a fifth by nobody: they are the test. Only then is each
image given to one person, or to 100 people: a simulated larger crowd. Nobody who checks or tests holds an image that
was learned from. No image is public.

In the first part 100 clients train the paper's network in rounds, and ε adds up. In the second a person's digit and
image are both private, and everybody answers once, so the ε of the message is their total. So it is in the third, where
invented people tell what they do in one week of a year, and the weeks are smoothed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from paper.datasets import load
from paper.reproduction.methods import METHODS
from paper.reproduction.rivals import ExactClassifier
from paper.training.problems import SETTINGS, image_problem
from paper.training.rounds import Server, train
from sstq import Frequencies
from sstq.aggregation import Estimate
from sstq.learning import Pixels, PrivateClassifier
from sstq.learning.features import unit_rows
from sstq.mechanisms.groupunit.group_estimates import GroupEstimate
from sstq.randomness.secret import RngLike
from sstq.studies import Panel, PanelResult

Floats = NDArray[np.float64]
Labelled = tuple[Floats, NDArray[np.int64]]
EPSILONS = (1.0, 2.0, 4.0, 8.0)
COPIES = (1, 100)
ROUNDS = 40
WEEKS = 52
INHABITANTS = 100_000
YEAR_EPSILON = 1.0
TRAINED = (
    "clean",
    "sstq-uniform",
    "sstq-optimized",
    "sstq-metric",
    "sqkr",
    "privunit",
    "vqsgd",
    "frameunit",
)


@dataclass(frozen=True, eq=False)
class Digits:
    """The images, split so that no image is in two parts: rows of pixels, and their digits.

    Attributes:
        teach: what the people hold whose messages are learned from.
        check: what the people hold who report privately whether the classifier is right.
        test: held by nobody.
    """

    teach: Labelled
    check: Labelled
    test: Labelled


@dataclass(frozen=True, eq=False)
class Crowd:
    """The result for one crowd at one ε.

    Attributes:
        epsilon: the total ε per person: one message, once.
        copies: the number of people who hold each image.
        people: the total number of people, those who check included.
        bits_per_person: the mean size of a message.
        bytes_sent: the bytes sent by all people.
        predicted: the accuracy that the people who check report, each privately for their own image.
        predicted_stderr: its standard error, that of having few images to check included.
        accuracy: the accuracy on the test images.
        accuracy_stderr: its standard error.
        shares: the estimated shares of the digits, (10,), projected onto the simplex.
        images: (10, 64), the estimated mean images of length-1 images; nan where a share is within two errors of 0.
    """

    epsilon: float
    copies: int
    people: int
    bits_per_person: float
    bytes_sent: int
    predicted: float
    predicted_stderr: float
    accuracy: float
    accuracy_stderr: float
    shares: Floats
    images: Floats


@dataclass(frozen=True, eq=False)
class Year:
    """A year of weeks.

    Attributes:
        truth: the true share of each habit by week, (habits, 52).
        result: the curves that the server has, from one message per person in all.
    """

    truth: Floats
    result: PanelResult


@dataclass(frozen=True, eq=False)
class Demo:
    """The result of the demo.

    Attributes:
        truth: the true mean images of those who teach, (10, 64).
        exact: accuracy and standard error of the same classifier from exact class sums, without privacy.
        tested: the number of test images.
        crowds: the results for every crowd at every ε.
        training: the rounds of the first part, as rows for `draw_networks`.
        simulated: whether a seed replaced secret randomness.
        year: the third part.
    """

    truth: Floats
    exact: tuple[float, float]
    tested: int
    crowds: tuple[Crowd, ...]
    training: tuple[dict[str, Any], ...]
    simulated: bool
    year: Year


def split_digits(rng: np.random.Generator) -> Digits:
    """Split the images at random.

    Examples:
        >>> [len(part[1]) for part in vars(split_digits(np.random.default_rng(0))).values()]
        [863, 287, 287]
    """
    digits = load("digits")
    images = digits.train_images.astype(np.float64)
    labels = digits.train_labels
    order = rng.permutation(len(labels))
    fifth = len(labels) // 5
    teach = order[2 * fifth :]
    check = order[:fifth]
    test = order[fifth : 2 * fifth]
    return Digits(*((images[part], labels[part]) for part in (teach, check, test)))


def run_demo(
    rng: RngLike = None,
    epsilons: Sequence[float] = EPSILONS,
    copies: Sequence[int] = COPIES,
    rounds: int = ROUNDS,
    progress: Callable[[str], None] = lambda _: None,
) -> Demo:
    """Train the paper's network with every mechanism, then learn from one message at every ε with every crowd."""
    source = None if rng is None else np.random.default_rng(rng)
    digits = split_digits(source or np.random.default_rng())
    training: list[dict[str, Any]] = []
    for method in TRAINED if rounds else ():
        training += _train(method, digits, rounds, source)
        progress(
            f"{METHODS[method].label}: {training[-1]['accuracy']:.0f} % after {rounds} rounds"
        )
    exact = ExactClassifier(features=Pixels(), check_people=0, random_state=0).fit(
        *_repeat(digits.teach, max(copies))
    )
    crowds = []
    for number in copies:
        for epsilon in epsilons:
            crowds.append(_ask(epsilon, number, digits, source))
            progress(
                f"{crowds[-1].people:,} people, total ε = {epsilon:g}: {crowds[-1].accuracy:.0%}"
            )
    images = unit_rows(digits.teach[0])
    labels = digits.teach[1]
    return Demo(
        truth=np.stack([images[labels == digit].mean(axis=0) for digit in range(10)]),
        exact=_score(exact, digits.test),
        tested=len(digits.test[1]),
        crowds=tuple(crowds),
        training=tuple(training),
        simulated=rng is not None,
        year=follow_year(source),
    )


def _train(
    method: str, digits: Digits, rounds: int, rng: np.random.Generator | None
) -> list[dict[str, Any]]:
    """Train the paper's network on all images but the test's, and return a row per round."""
    settings = SETTINGS["digits"]
    images, labels = (
        np.concatenate(both) for both in zip(digits.teach, digits.check, strict=True)
    )
    data = replace(
        load("digits"),
        train_images=images.astype(np.float32),
        train_labels=labels,
        test_images=digits.test[0].astype(np.float32),
        test_labels=digits.test[1],
    )
    problem = image_problem(data, settings.clients, seed=0)
    mechanism = METHODS[method].build(problem.model.dim, settings.clip, bits=4)
    seed = None if rng is None else int(rng.integers(2**32))
    server = Server(settings.rate, settings.norm_cap)
    return [
        {
            "method": method,
            "round": row.number,
            "bits": row.bits,
            "epsilon": row.epsilon,
            "accuracy": 100 * cast(float, row.accuracy),
            "accuracy_half_width": math.nan,
            "train_loss": row.train_loss,
            "train_loss_half_width": math.nan,
        }
        for row in train(
            problem, mechanism, server, rounds, batch=settings.batch, private_seed=seed
        )
    ]


def _repeat(held: Labelled, copies: int) -> Labelled:
    return np.repeat(held[0], copies, axis=0), np.repeat(held[1], copies)


def _score(model: PrivateClassifier, part: Labelled) -> tuple[float, float]:
    """Accuracy on images, and its standard error."""
    accuracy = float(model.score(*part))
    return accuracy, math.sqrt(accuracy * (1 - accuracy) / len(part[1]))


def _ask(
    epsilon: float, copies: int, digits: Digits, rng: np.random.Generator | None
) -> Crowd:
    seen: dict[str, Any] = {}

    class Watched(PrivateClassifier):
        """Keep what the server learns from a cohort; the main cohort is the last asked about classes."""

        def _answers(self, question: Any, *answers: Any) -> Estimate:
            estimate = super()._answers(question, *answers)
            seen[question.kind] = estimate
            return estimate

    model = Watched(epsilon, features=Pixels(), check_people=0, random_state=rng).fit(
        *_repeat(digits.teach, copies)
    )
    report = model.report_
    classes = cast(GroupEstimate, seen["classes"])
    predicted, stderr, check_bits = _check(model, epsilon, copies, digits.check, rng)
    counts = [
        (count, report.message_bits[cohort]) for cohort, count in report.people.items()
    ]
    counts.append((copies * len(digits.check[1]), check_bits))
    people = sum(count for count, _ in counts)
    return Crowd(
        epsilon,
        copies,
        people,
        sum(count * bits for count, bits in counts) / people,
        sum(-(-count * bits // 8) for count, bits in counts),
        predicted,
        stderr,
        *_score(model, digits.test),
        classes.simplex_shares(),
        mean_images(seen["centre"], classes.means),
    )


def _check(
    model: PrivateClassifier,
    epsilon: float,
    copies: int,
    held: Labelled,
    rng: np.random.Generator | None,
) -> tuple[float, float, int]:
    """Ask the people who check, each for one private bit; return accuracy, its standard error, and the bits sent."""
    right = np.repeat(model.predict(held[0]) == held[1], copies).astype(np.int64)
    mechanism = Frequencies(categories=2, epsilon=epsilon)
    aggregator = mechanism.aggregator()
    aggregator.update(mechanism.encode(right, rng=rng))
    estimate = aggregator.mean()
    accuracy = min(max(float(estimate.value[1]), 0.0), 1.0)
    # The messages of people with the same image show their noise, but not that there are few images.
    images = accuracy * (1 - accuracy) * (1 / len(held[1]) - 1 / len(right))
    return (
        accuracy,
        math.sqrt(float(estimate.stderr[1]) ** 2 + images),
        mechanism.message_bits,
    )


def follow_year(rng: RngLike = None, people: int = INHABITANTS) -> Year:
    """Follow two habits of invented people over a year: one is for summer, and one has a jump in week 30."""
    drawn = np.random.default_rng(rng)
    weeks = np.arange(WEEKS)
    season = 0.3 - 0.08 * np.cos(2 * np.pi * weeks / WEEKS)
    jump = np.where(weeks < 29, 0.2, 0.35)
    ends = np.cumsum([season, jump], axis=0)
    mood = drawn.random(people)  # of each person, all year
    held = [np.searchsorted(end, mood, side="right") for end in ends.T]
    panel = Panel(Frequencies(3, YEAR_EPSILON), periods=WEEKS)
    return Year(
        np.array([season, jump]), panel.simulate(held, None if rng is None else drawn)
    )


def mean_images(centre: Estimate, means: Floats) -> Floats:
    """Compute the mean image of every digit from the overall mean and its mean direction (image − centre)/length.

    Images u have length 1 and the mean c, so E‖u − ĉ‖² = 1 − ‖c‖² + ‖ĉ − c‖². Messages tell ‖ĉ − c‖² and, after the
    same is taken off ‖ĉ‖², ‖c‖².
    """
    noise = float(np.sum(centre.stderr**2))
    length = math.sqrt(max(1 - float(np.sum(centre.value**2)) + 2 * noise, 0))
    return centre.value + length * means
