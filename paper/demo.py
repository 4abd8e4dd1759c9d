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
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from paper.datasets import load
from paper.reproduction.central import ExactClassifier
from sstq.aggregation import Estimate
from sstq.canvas import ACCENT, FAINT, INK, SECOND, new_figure, save, tidy
from sstq.files.atomic import atomic_file
from sstq.learning import PrivateClassifier
from sstq.learning.features import unit_rows
from sstq.mechanisms.groupunit.estimates import GroupEstimate
from sstq.randomness.secret import RngLike

__all__ = ["Demo", "DemoRow", "draw_demo", "run_demo", "save_results"]

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


def run_demo(
    rng: RngLike = None,
    epsilons: Sequence[float] = EPSILONS,
    copies: Sequence[int] = COPIES,
) -> Demo:
    """Learn mean images and a classifier at every ε with every crowd.

    Args:
        rng: None for the operating system's randomness; a seed or Generator to repeat a result.
        epsilons: the values of a person's total ε.
        copies: the crowds, as numbers of people who hold each image.
    """
    digits = load("digits")
    held = unit_rows(digits.train_images.astype(np.float64)), digits.train_labels
    test = unit_rows(digits.test_images.astype(np.float64)), digits.test_labels
    source = rng if rng is None else np.random.default_rng(rng)
    exact = ExactClassifier(check_people=0, random_state=0).fit(*_crowd(held, max(copies)))
    rows = [_one_crowd(epsilon, crowd, held, test, source) for crowd in copies for epsilon in epsilons]
    truth = np.stack([held[0][held[1] == digit].mean(axis=0) for digit in range(10)])
    return Demo(truth, exact.score(*test), len(test[0]), tuple(rows), simulated=rng is not None)


def _crowd(held: Labelled, copies: int) -> Labelled:
    return np.repeat(held[0], copies, axis=0), np.repeat(held[1], copies)


def _one_crowd(epsilon: float, copies: int, held: Labelled, test: Labelled, rng: np.random.Generator | None) -> DemoRow:
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


# Colours and marks that differ without colour, one per crowd.
_STYLES = ((ACCENT, "o"), (SECOND, "s"), ("#3c7d3c", "^"), (FAINT, "D"))
_WIDTH, _ROW, _HEADING = 11.2, 0.5, 0.34


def draw_demo(demo: Demo, path: str | os.PathLike[str]) -> None:
    """Draw the mean images of every crowd on one grey scale, and accuracy against the total ε per person."""
    crowds = [[row for row in demo.rows if row.copies == copies] for copies in sorted({r.copies for r in demo.rows})]
    heights = [_HEADING, _ROW]
    for crowd in crowds:
        heights += [_HEADING] + [_ROW] * len(crowd)
    height = max(sum(heights) + 1.25, 4.5)
    figure = new_figure(_WIDTH, height)
    title = "Handwritten digits learned from one private message per person"
    figure.text(0.5, 1 - 0.25 / height, title, ha="center", va="center", fontsize=14, color=INK)
    epsilons = ", ".join(f"{row.epsilon:g}" for row in crowds[0])
    subtitle = f"Everybody answers once, so ε is the person's total: {epsilons}. Digit and image are both secret."
    figure.text(0.5, 1 - 0.53 / height, subtitle, ha="center", va="center", fontsize=9.5, color=FAINT)
    grid = figure.add_gridspec(
        len(heights),
        12,
        width_ratios=[1.9] + [1] * 10 + [1.2],
        height_ratios=heights,
        wspace=0.06,
        hspace=0.08,
        left=0.005,
        right=0.61,
        top=1 - 0.72 / height,
        bottom=0.5 / height,
    )
    _write(figure, grid[0, 1:11], "mean image of each digit")
    _write(figure, grid[0, 11], "accuracy")
    exact = f"{demo.exact_accuracy:.0%}"
    _draw_images(figure, grid, 1, demo.truth, ("no privacy", exact, INK), demo)
    line = 2
    for crowd, (colour, _) in zip(crowds, _STYLES, strict=False):
        _write(figure, grid[line, 1:11], _name(crowd[0]), colour)
        for row in crowd:
            line += 1
            words = (f"total ε = {row.epsilon:g}", f"{row.accuracy:.0%}", colour)
            _draw_images(figure, grid, line, row.images, words, demo)
        line += 1
    note = "Images are scaled to length 1 and drawn on one scale. Hatched: the digit's share is estimated as 0."
    figure.text(0.31, 0.2 / height, note, ha="center", va="center", fontsize=8, color=FAINT)
    axes = figure.add_axes((0.675, 1.15 / height, 0.315, 1 - 2.15 / height))
    _draw_accuracy(axes, crowds, demo)
    save(figure, path)


def _draw_accuracy(axes: Any, crowds: list[list[DemoRow]], demo: Demo) -> None:
    """Accuracy against total ε, one line per crowd."""
    epsilons = [row.epsilon for row in crowds[0]]
    axes.axhline(100 * demo.exact_accuracy, color=INK, linestyle="--", linewidth=1.3, label="no privacy")
    for crowd, (colour, marker) in reversed(list(zip(crowds, _STYLES, strict=False))):
        values = [100 * row.accuracy for row in crowd]
        name = f"{crowd[0].people:,} people"
        axes.plot(epsilons, values, marker=marker, color=colour, linewidth=1.8, markersize=7, label=name)
    axes.axhline(100 / len(demo.truth), color=FAINT, linestyle=":", linewidth=1.3, label="guessing")
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.set_ylim(0, 100)
    axes.set_xlabel("total ε of a person (one message, once)")
    axes.set_title(f"accuracy on {demo.tested} other images, per cent", fontsize=9.5, color=INK)
    axes.figure.legend(loc="lower center", bbox_to_anchor=(0.83, 0.005), ncols=2, frameon=False, fontsize=9)
    axes.grid(color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    tidy(axes)


def _name(row: DemoRow) -> str:
    held = "one person per image" if row.copies == 1 else f"{row.copies} simulated people per image"
    return f"{row.people:,} people: {held}"


def _draw_images(
    figure: Any, grid: Any, line: int, images: NDArray[np.float64], words: tuple[str, str, str], demo: Demo
) -> None:
    """Draw a row: its label, ten images, the accuracy; `words` has both texts and their colour."""
    side = round(images.shape[1] ** 0.5)
    _write(figure, grid[line, 0], words[0], align="right")
    _write(figure, grid[line, 11], words[1], words[2])
    for place, image in enumerate(images):
        axes = figure.add_subplot(grid[line, 1 + place])
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        if np.isnan(image).any():
            axes.patch.set(facecolor="#eeeeee", edgecolor="#bbbbbb", hatch="///")
        else:
            axes.imshow(image.reshape(side, side), cmap="gray", vmin=0, vmax=demo.truth.max(), interpolation="nearest")


def _write(figure: Any, place: Any, text: str, color: str = INK, align: str = "center") -> None:
    axes = figure.add_subplot(place)
    axes.set_axis_off()
    x = {"center": 0.5, "right": 0.94}[align]
    axes.text(x, 0.45, text, ha=align, va="center", fontsize=9.5, color=color, transform=axes.transAxes)
