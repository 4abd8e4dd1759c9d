"""One call to try a mechanism: encode public or invented vectors, and compare the estimated mean with the truth."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sstq.aggregation import Estimate
from sstq.array_types import Floats, Rows
from sstq.inputs import People
from sstq.inputs.arrays import as_vectors
from sstq.inputs.bounds import Bounds
from sstq.mechanisms import Mechanism
from sstq.mechanisms import mechanism as make_mechanism
from sstq.mechanisms.answers import encode_files
from sstq.mechanisms.registry import options_of
from sstq.randomness.secret import RngLike

# The error is predicted from this many of the vectors.
_ROWS = 256
_MOST_SHOWN = 12


@dataclass(frozen=True, repr=False)
class Simulation:
    """A simulated collection.

    Attributes:
        mechanism: the mechanism.
        estimate: the estimated mean, in the units of the vectors.
        truth: their true mean. Values beyond bounds count as they are, though they are encoded as the ends of these.
        error: the norm of the difference; with bounds, in units in which every column is as wide as the others
            (those of the ball, of radius clip).
        predicted_error: what `expected_mse` says that it is, as a root mean square, and how far bounds move the mean.
        bits: the bits per message.
        note: what you should know, such as which bounds are too narrow; may be empty.
        true_items: of a survey the true value of each item, by the names of its question and of the item.
    """

    mechanism: Mechanism
    estimate: Estimate
    truth: Floats
    error: float
    predicted_error: float
    bits: int
    note: str = ""
    true_items: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def __repr__(self) -> str:
        kind = f"{self.mechanism.name}, epsilon = {self.mechanism.epsilon:g}, {self.bits} bits per message"
        lines = [
            f"<Simulation of {self.estimate.count:,} messages ({kind})",
            f" error {self.error:.3g}, predicted {self.predicted_error:.3g}{self.clip_note}",
        ]
        for name, value, stderr, true in self.rows()[:_MOST_SHOWN]:
            lines.append(f" {name}: {value:.4g} ± {stderr:.2g}, true {true:.4g}")
        if len(self.truth) > _MOST_SHOWN:
            lines.append(f" … {len(self.truth) - _MOST_SHOWN:,} more columns")
        if self.note:
            lines.append(f" note: {self.note}")
        return "\n".join(lines) + ">"

    @property
    def clip_note(self) -> str:
        """The clip, if there is one, in brackets."""
        if not self.mechanism.input.has_clip:
            return ""
        unit = "" if self.mechanism.bounds is None else ", half of every range"
        return f" (clip = {self.mechanism.clip:g}{unit})"

    def rows(self) -> list[tuple[str, float, float, float]]:
        """The name, the estimate, its standard error and the truth of each column."""
        names = self.estimate.names or tuple(map(str, range(len(self.truth))))
        numbers = (
            self.estimate.value.tolist(),
            self.estimate.stderr.tolist(),
            self.truth.tolist(),
        )
        return list(zip(names, *numbers, strict=True))

    def items(self) -> list[tuple[str, str, float, float, float, float]]:
        """Of a survey the question, the item, its estimate, the ends of its 95 % interval, and the truth; or nothing.

        Unknown numbers are nan.
        """
        if not self.true_items:
            return []
        shown = []
        for row in self.estimate.table():
            numbers = (row[name] for name in ("estimate", "low", "high"))
            value, low, high = (math.nan if each is None else each for each in numbers)
            place = row["question"], row["item"]
            shown.append((*place, value, low, high, self.true_items[place]))
        return shown

    def held(self) -> tuple[int, int]:
        """How many intervals of `items` contain the truth, and of how many that are known."""
        known = [row for row in self.items() if not math.isnan(row[3])]
        held = sum(low <= true <= high for *_, low, high, true in known)
        return held, len(known)


def simulate(
    X: ArrayLike,
    epsilon: float,
    *,
    mechanism: str = "frameunit",
    bounds: Any = None,
    clip: float | None = None,
    rng: RngLike = None,
    **options: Any,
) -> Simulation:
    """Encode each row of X as one person's message, estimate the mean, and compare it with the true one.

    Args:
        X: (n, d), one row per person; a table needs `bounds` that name its columns.
        epsilon: the ε per person.
        mechanism: the name of the mechanism.
        bounds: the range of each column, {name: (low, high)} or an array of shape (d, 2); for FrameUnit and SSTQ.
        clip: vectors longer than this are scaled down to it; 1 unless given.
        rng: a seed, for the same result again.
        options: other arguments of the mechanism. FrameUnit gets as many frames as so many people need.

    Examples:
        >>> ages = np.random.default_rng(1).normal([50, 27], [9, 4], size=(20_000, 2))
        >>> trial = simulate(ages, epsilon=3.0, bounds={"age": (0, 110), "bmi": (10, 60)}, rng=1)
        >>> trial.bits, trial.error < 5 * trial.predicted_error, trial.estimate.names
        (19, True, ('age', 'bmi'))
    """
    taken = options_of(mechanism)
    given = {"bounds": bounds, "clip": clip}
    options |= {name: value for name, value in given.items() if value is not None}
    table: Any = X
    if isinstance(bounds, dict) and hasattr(X, "columns"):
        table = table[list(bounds)]
    rows = np.asarray(as_vectors(table), dtype=np.float64)
    if rows.ndim != 2 or len(rows) < 2:
        raise ValueError(
            f"X must have shape (n, d) with two or more rows, got {rows.shape}"
        )
    if "clients" in taken and not options.keys() & {"frames", "clients"}:
        options["clients"] = len(rows)
    if "epsilon" in taken:
        options["epsilon"] = epsilon
    built = make_mechanism(mechanism, dim=rows.shape[1], **options)
    built.input.vectors_only()
    estimate = built.aggregator().update(built.encode(rows, rng)).mean()
    return _compared(
        built, built.input.read(rows), built.input.unbounded(rows), estimate
    )


def simulate_people(
    mechanism: Mechanism, people: People, rng: RngLike = None
) -> Simulation:
    """Encode the people in files with a mechanism of any kind, estimate, and compare with the truth.

    Args:
        mechanism: the mechanism.
        people: what `mechanism.input.open` returns.
        rng: a seed, for the same result again.

    Examples:
        >>> import tempfile, sstq
        >>> mechanism = sstq.Frequencies(3, 4.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/floors.npy", np.arange(3000) % 3)
        ...     trial = simulate_people(mechanism, mechanism.input.open(f"{folder}/floors.npy"), rng=1)
        >>> trial.truth.round(3), trial.error < 5 * trial.predicted_error
        (array([0.333, 0.333, 0.333]), True)
    """
    aggregator = mechanism.aggregator()
    for messages in encode_files(mechanism, people, rng):
        aggregator.update(messages)
    held = mechanism.input
    pieces = list(people.pieces())
    rows = [held.read(piece.X, piece.groups) for piece in pieces]
    unbounded = [held.unbounded(piece.X, piece.groups) for piece in pieces]
    every = np.concatenate(rows)
    trial = _compared(mechanism, every, np.concatenate(unbounded), aggregator.mean())
    return replace(trial, true_items=held.true_items(every))


def _compared(
    mechanism: Mechanism, rows: Rows, unbounded: Rows, estimate: Estimate
) -> Simulation:
    """The estimate of these rows beside the truth; what nobody answered has no error."""
    held = mechanism.input
    mean = held.truth(unbounded).mean(axis=0)
    moved = held.truth(rows).mean(axis=0)
    truth = held.outward(mean)
    scale = (
        1.0
        if mechanism.bounds is None
        else Bounds(mechanism.bounds, mechanism.clip).scale
    )
    some = rows[:: -(-len(rows) // _ROWS)]
    expected = mechanism.mean_error(some, 1)
    predicted = float(
        np.sqrt(
            expected.bias2
            + expected.variance * len(some) / len(rows)
            + np.sum((mean - moved) ** 2)
        )
    )
    error = float(np.linalg.norm(np.nan_to_num(estimate.value - truth) / scale))
    notes = [estimate.note, _beyond(mechanism, rows, unbounded)]
    return Simulation(
        mechanism,
        estimate,
        truth,
        error,
        predicted,
        mechanism.message_bits,
        "; ".join(filter(None, notes)),
    )


def _beyond(mechanism: Mechanism, rows: Rows, unbounded: Rows) -> str:
    """How many values of which columns are beyond their bounds, and how far that moves the mean."""
    if mechanism.bounds is None:
        return ""
    told = []
    truths = mechanism.input.outward(unbounded.mean(axis=0))
    means = mechanism.input.outward(rows.mean(axis=0))
    shares = np.mean(rows != unbounded, axis=0)
    for (name, *_), share, true, mean in zip(
        mechanism.bounds, shares, truths, means, strict=True
    ):
        if share:
            told.append(
                f"{100 * share:.2g} % of the values of {name} are beyond its bounds and count as their ends, "
                f"which moves its mean from {true:.5g} to {mean:.5g}"
            )
    return "; ".join(told)
