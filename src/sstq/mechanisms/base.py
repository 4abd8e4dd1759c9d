"""The base class of every mechanism: an encoder with the decoder, the counts, the privacy and the errors."""

import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from sstq import kernels
from sstq.aggregation import Aggregator, Estimate, Estimator
from sstq.array_types import Floats, Floats32, Ints, Rows, Words
from sstq.checks import check_arguments, check_number
from sstq.exactness import round_up
from sstq.inputs import ClippedWarning, Input, LocalReport, Vectors
from sstq.inputs.bounds import Bounds, read_ranges
from sstq.inputs.trial_vectors import typical_vector
from sstq.kernels.threads import row_chunks
from sstq.mechanisms.agreement import Agreement, Ranges
from sstq.mechanisms.errors import ExpectedError, Unbiased
from sstq.messages.batch import Messages
from sstq.messages.layouts import Column, FloatField, Layout
from sstq.randomness.secret import BitSource, RngLike, bit_source
from sstq.scalar.laws import EitherLaw, Law

# What other modules take from here, besides the class and the signs of a code.
__all__ = ["SIGNS", "Batch", "ClippedWarning", "Columns", "ExpectedError"]
__all__ += ["LocalReport", "Mechanism", "Rows", "Unbiased"]

SIGNS = np.array([1.0, -1.0])
SIGNS.setflags(write=False)

# About how many numbers drawing one message takes.
_NUMBERS_PER_DRAW = 16

Columns = tuple[Column, ...]


class Batch(NamedTuple):
    """Checked rows, (n, …), with `words_each` secret words each."""

    rows: Rows
    words: Words
    report: LocalReport | None


class Draw(Protocol):
    """The secret draw of a message: the data choose a case of its law, and secret words an outcome."""

    def law(self) -> Law | EitherLaw:
        """All probabilities as integers, with the words that decide; ValueError for continuous outcomes."""

    def privacy_loss(self) -> float:
        """The largest log-ratio of the probabilities (or densities) of an outcome, rounded up to a double."""


class Mechanism(Agreement):
    """A randomizer of vectors and its decoder; immutable, shared by client and server through its JSON form.

    `dim`, `epsilon`, `clip` and the public seed mean the same for every mechanism.

    Attributes:
        dim: d, the length of the vectors.
        epsilon: the ε of one message (local differential privacy), 0.01 to 20.
        delta: the δ of the guarantee; 0, unless a mechanism of your own says otherwise. Ledgers then refuse it.
        clip: vectors longer than this are scaled down to it.
        clients: the number of clients per round, if the mechanism is built for a fixed number; otherwise None.
        groups: the number of groups, if each person has a private group besides the vector; otherwise None.
        messages: m, the messages per person, for a shuffler that mixes each of these slots separately; 1 unless given.
            Each message is then an independent draw from the same vector, and `epsilon` is that of one.
        frame_size: N, the number of rows of the frame, if there is one; otherwise None.
        bounds: the name, the least and the largest value of each column, if the mechanism was given any. Vectors and
            means are then in the units of the columns; `decode`, `expected_mse` and plans are of the scaled vectors.
        exact: whether the implemented output distribution is ε-LDP exactly, integer by integer. Mechanisms with
            continuous outputs are private up to floating point only.
        variants: the variants that `sstq compare` shows: labels, and the options of each.


    Examples:
        >>> import sstq
        >>> mechanism = sstq.mechanism("frameunit", dim=3, epsilon=2.0)
        >>> aggregator = mechanism.aggregator().update(mechanism.encode(np.full((1000, 3), 0.5)))
        >>> aggregator.mean().count, mechanism.privacy_loss() <= 2.0
        (1000, True)
    """

    exact: ClassVar[bool]
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    dim: int
    epsilon: float
    delta: float = 0.0
    clip: float
    clients: int | None = None
    groups: int | None = None
    messages: int = 1
    bounds: Ranges | None = None
    frame_size: int | None = None

    @cached_property
    def input(self) -> Input:
        """What a person holds: how it is read, opened from files, and mended on a device."""
        return Vectors(self.dim, self.clip, self.bounds)

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """The fields of a message."""

    @property
    @abstractmethod
    def draw(self) -> Draw:
        """The secret draw: all that protects a message."""

    @property
    @abstractmethod
    def estimator(self) -> Estimator:
        """How messages are added up, and what is estimated from the sums; usually cached."""

    @abstractmethod
    def encode_batch(self, batch: Batch) -> Columns:
        """Return the columns of the messages. Most encoders start with `unit_ball`; others count clipped rows."""

    @abstractmethod
    def largest_message(self) -> float:
        """R, the largest norm of the estimate of one valid message; for `sstq.planning.poisoning`."""

    @abstractmethod
    def row_error(self, rows: Rows) -> tuple[Floats, Floats]:
        """E[x̂] of each row, (n, d), and the variance of x̂ summed over the coordinates, (n,)."""

    def with_seed(self, seed: int) -> Self:
        """Return the mechanism with another public seed, for the next round; itself if it has no public randomness.

        Examples:
            >>> import sstq
            >>> sstq.SSTQ(10, 1.0).with_seed(5) == sstq.SSTQ(10, 1.0, frame_seed=5)
            True
        """
        if self.seed_option is None:
            return self
        return self.replace(**{self.seed_option: seed})

    @property
    def unbiased(self) -> Unbiased:
        """When the estimate's expectation is the (clipped) vector, over messages and frames."""
        return Unbiased.ALWAYS

    @property
    def estimate_dim(self) -> int:
        """The length of an estimate: dim, or groups·dim with private groups."""
        return self.dim * (self.groups or 1)

    @property
    def coordinates(self) -> int:
        """The numbers of a mean, or of the mean of one group."""
        return self.estimate_dim // (self.groups or 1)

    @property
    def message_bits(self) -> int:
        """The size of one message in bits."""
        return self.layout.message_bits

    @property
    def bundle_epsilon(self) -> float:
        """m·ε, the total ε of a person's messages to anyone who can tell that they come from one person; rounded up.

        It is the ε that remains if a shuffler cheats, and what ledgers charge. `epsilon` is that of one message.
        """
        return round_up(self.messages * Fraction(self.epsilon))

    def _check(self) -> None:
        check_arguments(vars(self.solved), self.narrowed)
        if self.bounds is not None:
            read_ranges(self.bounds, self.dim)
        for name in vars(self.solved):
            getattr(self, name)  # parts are checked when they are made
        self.check_solved()
        spent = self.privacy_loss()
        if not spent <= self.epsilon:
            raise ValueError(
                f"the mechanism spends {spent:.17g}, above epsilon = {self.epsilon}"
            )

    def check_solved(self) -> None:
        """Refuse whatever else is wrong with parameters, such as decoding values that do not fit the integers."""

    @property
    def words_each(self) -> int:
        """The number of secret words per message, the same for every vector."""
        return 3

    def encode_rows(
        self, rows: Rows, source: BitSource, report: LocalReport | None
    ) -> Columns:
        """Encode rows with words of a source."""
        # The same number of words for every vector, drawn before anything is known about the data.
        shape = len(rows), self.words_each
        words = source.words(shape[0] * shape[1]).reshape(shape)
        return self.encode_batch(Batch(rows, words, report))

    @property
    def row_cost(self) -> int:
        """About how many numbers encoding one row takes, such as its scores, which limits the rows at a time."""
        return self.frame_size or self.dim

    def encode(
        self,
        X: Any,
        rng: RngLike = None,
        *,
        groups: ArrayLike | None = None,
        report: LocalReport | None = None,
    ) -> Messages:
        """Encode each row of X as one private message; with `messages` = m, as m messages, slot by slot.

        Message j·n + i is that of row i in slot j. Each is drawn independently, on its own frame.

        Args:
            X: (d,) or (n, d), finite: floats, or anything that converts to them exactly, such as integers, tensors and
                columns of lists. Rows longer than `clip` are scaled down to it.
            rng: None for the operating system's randomness (needed for privacy); an integer seed or a NumPy Generator
                for simulations, which marks the messages as simulated.
            groups: for mechanisms with private groups, one integer from 0 to groups − 1 per row.
            report: counts of clipped rows and missed certificates, which depend on the data; keep it local.

        Examples:
            >>> import numpy as np, sstq
            >>> mechanism = sstq.SSTQ(dim=3, epsilon=2.0, bits=2)
            >>> mechanism.encode(np.array([0.1, -0.2, 0.3])).to_bytes() != b""
            True
        """
        seen = LocalReport()
        rows = self.input.read(X, groups, seen)
        for warning in [*self.input.warnings(rows), *seen.warnings()]:
            warnings.warn(warning, stacklevel=2)  # the line that called encode
        if report is not None:
            report.add(seen)
        return self.encode_slots(rows, bit_source(rng), report, self.messages)

    @np.errstate(all="ignore")  # whatever the application has NumPy raise
    def encode_slots(
        self,
        rows: Rows,
        source: BitSource,
        report: LocalReport | None,
        slots: int,
    ) -> Messages:
        """Encode this many messages per checked row, slot by slot."""
        count = len(rows)
        # Kernels work on a few rows at a time, so that a quarter of their numbers is about what is in memory.
        parts = row_chunks(count, _NUMBERS_PER_DRAW + self.row_cost // 4)
        columns = self.layout.empty(slots * count)
        for slot in range(slots):
            for part in parts:
                # Each vector is reported once.
                encoded = self.encode_rows(
                    rows[part], source, report if slot == 0 else None
                )
                place = slice(slot * count + part.start, slot * count + part.stop)
                for column, values in zip(columns, encoded, strict=True):
                    column[place] = values
        if report is not None:
            report.vectors += count
        return Messages(self.layout, columns, self._digest, source.simulated)

    def messages_from_bytes(self, raw: bytes, count: int) -> Messages:
        """Read the messages that `Messages.to_bytes` packed; ValueError for anything else."""
        count = check_number("count", count, 0, 2**62, integer=True)
        return self.messages_from_columns(
            self.layout.unpack(raw, count), simulated=False
        )

    def messages_from_columns(self, columns: Columns, simulated: bool) -> Messages:
        """Build messages from the values of their fields; ValueError for values out of range."""
        messages = Messages(self.layout, columns, self._digest, simulated)
        self.check_messages(messages)
        return messages

    def check_messages(self, messages: Messages) -> None:
        """Refuse values that the fields allow but this mechanism never sends."""

    def unit_ball(self, rows: Rows, report: LocalReport | None = None) -> Floats32:
        """Clip rows to norm `clip` and divide by it; the report counts the longer ones."""
        unit, longer = kernels.clip_to_ball(rows, self.clip)
        if report is not None:
            report.clipped += int(longer.sum())
        return unit

    def finished(self, estimate: Estimate) -> Estimate:
        """The estimate of an aggregator with the decoder's bias, a note about clip, and in the units of bounds."""
        bias, directions, advice = self.bias_of_mean(estimate.count)
        if bias and estimate.count > 1:
            stderr = np.sqrt(estimate.stderr**2 + bias**2 / len(estimate.stderr))
            note = "; ".join(filter(None, [advice, estimate.note]))
            estimate = replace(
                estimate,
                stderr=stderr,
                frame_bias=bias,
                bias_directions=directions,
                note=note,
            )
        if self.bounds is not None:
            return estimate.in_units(Bounds(self.bounds, self.clip))
        if advice := self.input.advice(estimate.value, estimate.stderr):
            note = "; ".join(filter(None, [estimate.note, advice]))
            estimate = replace(estimate, note=note)
        return estimate

    def bias_of_mean(self, count: int) -> tuple[float, int, str]:  # noqa: ARG002 (a hook)
        """A bound of the bias in a mean of so many messages, its directions, and advice about it."""
        return 0.0, 1, ""

    def uniform_coordinates(self, sums: Ints) -> Ints | None:  # noqa: ARG002 (a hook)
        """How many messages there are of each coordinate, if it is drawn uniformly without looking at the data."""
        return None

    @property
    def clients_allowed(self) -> int | None:
        """The most clients per round for which a bias is small beside the error; None if there is no such bias."""
        return None

    @property
    def worst_directions(self) -> Rows:
        """Two vectors of which messages may tell more than of others, such as rows of a frame; may be none."""
        return np.empty((0, self.dim))

    def decode(self, messages: Messages) -> Floats:
        """Return the estimate of each single message, (n, d), for diagnosis; use `aggregator` for a mean.

        With bounds these are vectors of the ball, as `expected_mse` has them; means are in the units of the columns.
        """
        if messages.digest != self.digest():
            raise ValueError(
                "messages must come from this mechanism, got messages of another mechanism"
            )
        return self.estimator.decode(messages)

    @property
    def uncountable(self) -> str:
        """Why no estimate comes from counts of the messages; empty if one does."""
        if any(isinstance(field, FloatField) for field in self.layout.fields):
            return "its messages are whole vectors, of which hardly two are equal"
        return ""

    @property
    def counted_layout(self) -> Layout:
        """The fields of a table of counts, which are those of a message.

        ValueError for mechanisms that are not estimated from counts, with the reason.

        Examples:
            >>> import sstq
            >>> layout = sstq.SSTQ(dim=4, epsilon=4.0, bits=2).counted_layout
            >>> layout.names
            ['code', 'index']
        """
        if self.uncountable:
            raise ValueError(
                f"{self.name} cannot be estimated from counts of messages: {self.uncountable}"
            )
        return self.layout

    def aggregator(self) -> Aggregator[Estimate]:
        """Create an empty aggregator for this mechanism's messages."""
        return Aggregator(self.estimator)

    def load_aggregator(self, path: str | os.PathLike[str]) -> Aggregator[Estimate]:
        """Load an aggregator that was saved to a file; ValueError unless it is complete and of this mechanism."""
        return Aggregator.load(path, self.estimator)

    def law(self) -> Law | EitherLaw:
        """Return all probabilities of the secret draw as integers, for `sstq.audit`; ValueError if there are none."""
        if self.exact:
            return self.draw.law()
        reason = "sends continuous values, whose privacy holds up to floating point only (exact=False)"
        raise ValueError(f"{self.name} {reason}: there are no integer weights to audit")

    def privacy_loss(self) -> float:
        """Return the largest log-ratio of the output distribution, rounded up to a double.

        If `exact`, it is that of the implemented distribution, else of the densities that floating point approximates.
        Everything but the secret draw, such as an index or a frame, is chosen without looking at the data.
        """
        return self.draw.privacy_loss()

    def largest_honest_mean(self) -> float:
        """The largest norm of an honest client's expected estimate; clip if that is unbiased."""
        return self.clip if self.unbiased else self.largest_biased_mean()

    def largest_biased_mean(self) -> float:
        """The largest norm of an honest mean where estimates are biased."""
        return self.largest_message()

    def unbiased_error(self, rows: Rows, power: float) -> tuple[Floats, Floats]:
        """The error of rows whose estimates are unbiased and have E‖x̂‖² = `power` whatever the row is."""
        mean = self.unit_ball(rows).astype(np.float64) * self.clip
        return mean, power - np.einsum("ij,ij->i", mean, mean)

    def expected_mse(
        self,
        x: ArrayLike,
        clients: int | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> ExpectedError:
        """Return the expected squared error of a mean, split into bias and variance.

        Args:
            x: (d,), held by each of `clients` clients (1 by default); or (n, d), one row per client.
            clients: the number of clients, with a single x. Each sends `messages` messages.
            groups: for mechanisms with private groups, the group of each row.

        Returns:
            `bias2` is the squared distance of the expected mean from the mean of x before clipping;
            `variance` is the variance of the mean.

        Examples:
            >>> import sstq
            >>> error = sstq.SSTQ(dim=4, epsilon=3.0, bits=2).expected_mse(np.full(4, 0.5), clients=100)
            >>> error.bias2 < 1e-9 < error.variance
            True
        """
        rows = self.input.read(x, groups)
        if len(rows) != 1 and clients not in (None, len(rows)):
            raise ValueError(
                f"clients must be left out with {len(rows)} rows of x, which are the clients, got {clients!r}"
            )
        repeats = 1
        if clients is not None and len(rows) == 1:
            repeats = check_number("clients", clients, 1, 2**62, integer=True)
        if not len(rows):
            raise ValueError("x must have at least one row")
        return self.mean_error(rows, repeats)

    def mean_error(self, rows: Rows, repeats: int) -> ExpectedError:
        """The error of the mean of these rows, each held by this many clients."""
        count = len(rows)
        bias = np.zeros(1)
        variance = 0.0
        # A huge clipped-off part, or its square, may be infinite, which is then the correct double.
        with np.errstate(over="ignore"):
            for part in row_chunks(count, max(self.row_cost, self.estimate_dim)):
                mean, variances = self.row_error(rows[part])
                bias = bias + np.sum(mean - self.input.truth(rows[part]), axis=0)
                variance += float(np.sum(variances))
            bias2 = float(np.sum((bias / count) ** 2))
        messages = repeats * self.messages
        return ExpectedError(bias2, variance / count**2 / messages)

    def prospect(self, clients: int) -> tuple[float, bool]:
        """The error of one number of an estimate from so many people, and whether it tells anything."""
        total = self.typical_error(clients).total
        return math.sqrt(total / self.estimate_dim), total < self.clip**2

    def typical_error(self, clients: int = 1) -> ExpectedError:
        """Return the error of a mean of clients that all hold one typical vector of norm clip, a Gaussian direction."""
        return self.expected_mse(typical_vector(self.dim, self.clip), clients=clients)
