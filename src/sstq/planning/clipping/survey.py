"""A private survey of norms: a client compares its norm with one public threshold and answers by randomized response.

A client draws one of K thresholds, without looking at its data, and the true answer to "is your norm above it?" goes
through the exactly ε-LDP channel on two tokens. The message is the number and the answer, ⌈log₂ K⌉ + 1 bits.

The share of clients above a threshold has the standard error √(K/4n)/(p − q), p − q = tanh(ε/2). Its variance is
K/(4·tanh²(ε/2)) per client; randomized response on the K + 1 bins between the thresholds would have about K²/(2ε²).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.aggregation import Aggregator
from sstq.checks import check_argument, check_number
from sstq.chunks import row_chunks
from sstq.mechanisms.agreement import Agreement, read_document
from sstq.mechanisms.base import Columns, Trust, Words
from sstq.mechanisms.flat_response import flat_response, gain
from sstq.mechanisms.parameters import Parameters, Values, Word
from sstq.messages.arrays import as_vectors
from sstq.messages.batch import Messages
from sstq.messages.layouts import Field, Layout
from sstq.planning.clipping.choice import NormProfile
from sstq.randomness import streams
from sstq.randomness.secret import RngLike, bit_source, channel_words
from sstq.scalar.channels import FlatChannel, flat_channel_of_size

_MOST_THRESHOLDS = 4096


@dataclass(frozen=True, eq=False, kw_only=True)
class NormSurveyParameters(Parameters):
    """The parameters of a survey: the thresholds, and the two weights of randomized response."""

    epsilon: float
    lowest: float
    highest: float
    thresholds: int
    values: Values
    own: Word
    other: Word


class NormSurvey(Agreement):
    """A private question about the norm of a client's vector; immutable, shared by its JSON form.

    Args:
        epsilon: the ε of one answer, 0.01 to 20, in addition to what the mean costs.
        lowest: the least threshold.
        highest: the largest threshold. Of larger norms only their number is known.
        thresholds: K, the number of thresholds in geometric progression, 2 to 4096; the standard error grows with √K.

    Examples:
        >>> survey = NormSurvey(epsilon=0.5, lowest=0.1, highest=10.0)
        >>> survey.message_bits, survey.privacy_loss() <= 0.5, survey.clients_for(stderr=0.02)
        (5, True, 166708)
    """

    json_format: ClassVar[str] = "sstq-norm-survey"
    exact: ClassVar[bool] = True
    trust: ClassVar[Trust] = "local"
    messages: int = 1

    parameters_class = NormSurveyParameters
    parameters: NormSurveyParameters
    epsilon: float

    def __init__(self, epsilon: float, lowest: float, highest: float, thresholds: int = 16) -> None:
        epsilon = check_argument("epsilon", epsilon)
        count = self._check_range(lowest, highest, thresholds)
        channel = flat_channel_of_size(2, epsilon)
        solved = NormSurveyParameters(
            epsilon=epsilon,
            lowest=float(lowest),
            highest=float(highest),
            thresholds=count,
            values=np.geomspace(lowest, highest, count),
            own=channel.own,
            other=channel.other,
        )
        self._hold(solved)

    @staticmethod
    def _check_range(lowest: float, highest: float, thresholds: int) -> int:
        lowest = check_number("lowest", lowest, 1e-100, 1e100)
        check_number("highest", highest, lowest, 1e100)
        return int(check_number("thresholds", thresholds, 2, _MOST_THRESHOLDS, integer=True))

    def _check(self) -> None:
        solved, values = self.parameters, self.thresholds
        count = self._check_range(solved.lowest, solved.highest, solved.thresholds)
        if len(values) != count or not all(before < after for before, after in pairwise(values)):
            got = f"{len(values)} from {values[0]:g} on" if values else "none"
            raise ValueError(f"thresholds must be {count} increasing numbers, got {got}")
        if (values[0], values[-1]) != (solved.lowest, solved.highest):
            raise ValueError(
                f"values must begin with lowest = {solved.lowest:g} and end with highest = {solved.highest:g}"
            )
        self.privacy_loss()

    @cached_property
    def thresholds(self) -> tuple[float, ...]:
        """The thresholds, ascending."""
        return tuple(self.parameters.values.tolist())

    @cached_property
    def channel(self) -> FlatChannel:
        """Randomized response on two tokens; its weights are checked exactly when it is made."""
        return flat_response(2, self.epsilon, self.parameters.own, self.parameters.other)

    @property
    def layout(self) -> Layout:
        """The fields of a message: the answer in the lowest bit (1 is yes) and the threshold's number above it."""
        count = len(self.thresholds)
        return Layout((Field("answer", 1, 2), Field("threshold", (count - 1).bit_length(), count)))

    @property
    def message_bits(self) -> int:
        """The size of one answer in bits."""
        return self.layout.message_bits

    @property
    def gain(self) -> float:
        """The factor p − q by which the channel shrinks the share of yes around one half, from its integers."""
        return gain(self.channel)

    def privacy_loss(self) -> float:
        """The exact log-ratio of the channel's two integers, rounded up: the threshold does not depend on the data."""
        return self.channel.privacy_loss()

    def encode(self, X: ArrayLike, rng: RngLike = None) -> Messages:
        """Encode private answers about the Euclidean norms of the rows of X.

        Args:
            X: (n, d), finite, as for a mechanism's `encode`, with any d.
            rng: None for the operating system's randomness (needed for privacy); a seed or Generator for simulations.
        """
        return self.encode_norms(_norms(X), rng)

    def encode_norms(self, norms: ArrayLike, rng: RngLike = None) -> Messages:
        """Encode private answers about norms that the caller has computed, (n,)."""
        lengths = as_vectors(norms, "norms")
        if lengths.ndim != 1:
            raise ValueError(f"norms must have shape (n,), got {lengths.shape}")
        bad = np.flatnonzero(~(lengths >= 0))
        if len(bad):
            raise ValueError(f"norms must not be negative or nan, got {lengths[bad[0]]} at place {bad[0]}")
        source = bit_source(rng)
        # Always two words per message, drawn before anything is known about the data.
        words = source.words(2 * len(lengths)).reshape(-1, 2)
        asked = streams.multiply_shift(words[:, 0], len(self.thresholds))
        above = lengths > np.array(self.thresholds)[asked]
        answer = self.channel.sample(above.astype(np.int64), channel_words(words[:, 1]))
        columns = tuple(c.astype(f.dtype) for f, c in zip(self.layout.fields, (answer, asked), strict=True))
        return self.messages_from_columns(columns, None, source.simulated)

    def messages_from_bytes(self, raw: bytes, count: int) -> Messages:
        """Read the messages that `Messages.to_bytes` packed; ValueError for anything else."""
        count = check_number("count", count, 0, 2**62, integer=True)
        return self.messages_from_columns(self.layout.unpack(raw, count), None, False)

    def messages_from_columns(self, columns: Columns, clients: Words | None, simulated: bool) -> Messages:
        """Build messages from the values of their fields."""
        if clients is not None:
            raise ValueError("clients must be left out: a survey has a private coin")
        return Messages(self.layout, columns, self.digest(), simulated=simulated)

    @property
    def counted_layout(self) -> Layout:
        """The fields of a table of counts: those of an answer."""
        return self.layout

    def counted_messages(self, columns: Columns, simulated: bool) -> Messages:
        """Build messages from the fields of a table of counts."""
        return self.messages_from_columns(columns, None, simulated)

    def aggregator(self) -> NormAggregator:
        """Create an empty aggregator for this survey's answers."""
        return NormAggregator(self)

    def expected_stderr(self, clients: int) -> float:
        """The standard error of the share above a threshold, at most: √(K/4n)/(p − q)."""
        clients = check_number("clients", clients, 1, 2**62, integer=True)
        return math.sqrt(len(self.thresholds) / (4 * clients)) / self.gain

    def clients_for(self, stderr: float) -> int:
        """Return the least number of clients for which `expected_stderr` is at most `stderr`."""
        stderr = check_number("stderr", stderr, 1e-6, 1)
        return math.ceil(len(self.thresholds) / (4 * (self.gain * stderr) ** 2))

    @classmethod
    def from_json(cls, text: str) -> NormSurvey:
        """Read a survey from its `to_json` and check its integers; ValueError for anything else."""
        return cls.from_parameters(NormSurveyParameters.from_dict(read_document(text, cls.json_format)))


class NormAggregator(Aggregator[NormSurvey]):
    """Two counts per threshold: how often the answer was no and yes. `profile` estimates the norms from them."""

    def _empty_state(self) -> NDArray[np.int64]:
        return np.zeros((len(self._mechanism.thresholds), 2), dtype=np.int64)

    def _add(self, messages: Messages) -> None:
        self._add_counts(messages, np.ones(len(messages), dtype=np.int64))

    def _add_counts(self, messages: Messages, times: NDArray[np.int64]) -> None:
        np.add.at(self._state, (messages.column("threshold"), messages.column("answer")), times)

    def profile(self, confidence: float = 0.95) -> NormProfile:
        """Return the profile of the norms so far; all intervals hold together with this confidence, at least 0.5."""
        if not self._count:
            raise ValueError("a profile needs at least one answer, got none")
        thresholds, gained = np.array(self._mechanism.thresholds), self._mechanism.gain
        confidence = check_number("confidence", confidence, 0.5, 1 - 1e-6)
        return NormProfile.from_counts(thresholds, self._state, gained, confidence, simulated=self._simulated)

    def _mean_and_second_moment(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """A single answer's estimate of all shares: K·(1/2 ± 1/(2(p − q))) at its threshold, zero elsewhere."""
        survey = self._mechanism
        values = len(survey.thresholds) * (0.5 + np.array([-0.5, 0.5]) / survey.gain)
        return self._state @ values / self._count, self._state @ values**2 / self._count


def _norms(X: ArrayLike) -> NDArray[np.float64]:
    """The Euclidean norm of every row, scaled before squaring, so that only a norm beyond all doubles is infinite."""
    rows = as_vectors(X)
    if rows.ndim != 2:
        raise ValueError(f"X must have shape (n, d), got {rows.shape}")
    norms = np.zeros(len(rows))
    for part in row_chunks(len(rows), max(1, rows.shape[1])):
        values = rows[part].astype(np.float64)
        largest = np.max(np.abs(values), axis=1, initial=0.0)
        if len(bad := np.flatnonzero(~np.isfinite(largest))):
            raise ValueError(f"X must be finite, got nan or infinity in row {part.start + bad[0]}")
        with np.errstate(over="ignore"):
            norms[part] = largest * np.linalg.norm(values / np.where(largest > 0, largest, 1.0)[:, None], axis=1)
    return norms
