"""The demo: ten mean images and a classifier of handwritten digits, from one private message per person.

The data are scikit-learn's 1,797 images of 8×8 pixels, split as `paper.datasets` does: the last 360 are test images,
which nobody holds. The others are held by one person each, or by 100 people each: a simulated larger crowd. A person's
digit and image are both private. `PrivateClassifier` asks every person once, so the ε of the message is their total.
No image is public.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation import Estimate
from sstq.files.atomic import atomic_file
from sstq.mechanisms.groupunit.estimates import GroupEstimate
from sstq.randomness.secret import RngLike

__all__ = ["Demo", "DemoRow", "planned_people", "run_demo", "save_results"]

Floats = NDArray[np.float64]
Labelled = tuple[Floats, NDArray[np.int64]]
EPSILONS = (1.0, 2.0, 4.0, 8.0)
COPIES = (1, 100)
HELD = 1437


@dataclass(frozen=True, eq=False)
class DemoRow:
    """The result for one crowd at one ε.

    Attributes:
        epsilon: the total ε per person: one message, once.
        copies: the number of people who hold each image.
        people: the total number of people.
        bits_per_person: the mean size of a message.
        bytes_sent: the bytes sent by all people.
        predicted_accuracy: the accuracy that a twentieth of the people reported privately for their own images.
        predicted_stderr: its standard error.
        accuracy: the accuracy on the test images.
        shares: the estimated shares of the digits, (10,), projected onto the simplex.
        images: (10, 64), the estimated mean images of length-1 images; nan where a share is estimated as 0 or less.
    """

    epsilon: float
    copies: int
    people: int
    bits_per_person: float
    bytes_sent: int
    predicted_accuracy: float
    predicted_stderr: float
    accuracy: float
    shares: Floats
    images: Floats


@dataclass(frozen=True, eq=False)
class Demo:
    """The result of the demo.

    Attributes:
        truth: the true mean images, (10, 64).
        exact_accuracy: the accuracy of the same classifier from exact class sums, without privacy.
        tested: the number of test images.
        rows: the results for every crowd at every ε.
        simulated: whether a seed replaced secret randomness.
    """

    truth: Floats
    exact_accuracy: float
    tested: int
    rows: tuple[DemoRow, ...]
    simulated: bool


def planned_people(epsilons: Sequence[float] = EPSILONS, copies: Sequence[int] = COPIES) -> int:
    """Return the number of people whom `run_demo` simulates."""
    return HELD * len(epsilons) * sum(copies)


def run_demo(
    rng: RngLike = None,
    epsilons: Sequence[float] = EPSILONS,
    copies: Sequence[int] = COPIES,
    advance: Callable[[int], None] = lambda _: None,
) -> Demo:
    """Learn mean images and a classifier at every ε with every crowd.

    Args:
        rng: None for the operating system's randomness; a seed or Generator to repeat a result.
        epsilons: the values of a person's total ε.
        copies: the crowds, as numbers of people who hold each image.
        advance: called with the number of people that have answered since the last call.

    """
    from paper.datasets import load

    digits = load("digits")
    from paper.reproduction.central import ExactClassifier
    from sstq.learning.features import unit_rows

    held = unit_rows(digits.train_images.astype(np.float64)), digits.train_labels
    test = unit_rows(digits.test_images.astype(np.float64)), digits.test_labels
    source = rng if rng is None else np.random.default_rng(rng)
    exact = ExactClassifier(check_people=0, random_state=0).fit(*_crowd(held, max(copies)))
    rows = []
    for crowd in copies:
        for epsilon in epsilons:
            rows.append(_one_crowd(epsilon, crowd, held, test, source))
            advance(rows[-1].people)
    truth = np.stack([held[0][held[1] == digit].mean(axis=0) for digit in range(10)])
    return Demo(truth, exact.score(*test), len(test[0]), tuple(rows), simulated=rng is not None)


def _crowd(held: Labelled, copies: int) -> Labelled:
    return np.repeat(held[0], copies, axis=0), np.repeat(held[1], copies)


def _one_crowd(epsilon: float, copies: int, held: Labelled, test: Labelled, rng: np.random.Generator | None) -> DemoRow:
    from sstq.learning import PrivateClassifier

    seen: dict[str, Any] = {}

    class Watched(PrivateClassifier):
        """Keep what the server learns from a cohort; the main cohort is the last asked about classes."""

        def _answers(self, question: Any, *answers: Any) -> Estimate:
            estimate = super()._answers(question, *answers)
            seen[question.kind] = estimate
            return estimate

    model = Watched(epsilon, random_state=rng).fit(*_crowd(held, copies))
    report, classes = model.report(*test), cast(GroupEstimate, seen["classes"])
    people = sum(report.people.values())
    bytes_sent = sum(-(-count * report.message_bits[cohort] // 8) for cohort, count in report.people.items())
    return DemoRow(
        epsilon=report.epsilon,
        copies=copies,
        people=people,
        bits_per_person=sum(count * report.message_bits[cohort] for cohort, count in report.people.items()) / people,
        bytes_sent=bytes_sent,
        predicted_accuracy=report.predicted_accuracy,
        predicted_stderr=report.accuracy_stderr,
        accuracy=report.true_accuracy,
        shares=classes.simplex_shares(),
        images=mean_images(seen["centre"], classes.means),
    )


def mean_images(centre: Estimate, means: Floats) -> Floats:
    """Compute the mean image of every digit from the overall mean and its mean direction (image − centre)/length.

    Images u have length 1 and the mean c, so E‖u − ĉ‖² = 1 − ‖c‖² + ‖ĉ − c‖². Messages tell ‖ĉ − c‖² and, after the
    same is taken off ‖ĉ‖², ‖c‖².
    """
    noise = float(np.sum(centre.stderr**2))
    length = math.sqrt(max(1 - float(np.sum(centre.value**2)) + 2 * noise, 0))
    return centre.value + length * means


def save_results(demo: Demo, path: str | os.PathLike[str]) -> None:
    """Write the numbers of the table as JSON."""
    rows: list[dict[str, Any]] = []
    for row in demo.rows:
        numbers = asdict(row) | {"shares": row.shares.tolist()}
        del numbers["images"]
        rows.append(numbers)
    document = {"simulated": demo.simulated, "exact_accuracy": demo.exact_accuracy, "tested": demo.tested, "rows": rows}
    with atomic_file(path) as file:
        file.write(json.dumps(document, indent=2).encode() + b"\n")
