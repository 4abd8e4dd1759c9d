"""The contract of every mechanism, and what all of them share: input checks, clipping, encoding, expected errors."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq import kernels
from sstq.aggregation import Aggregator
from sstq.checks import check_number
from sstq.chunks import row_chunks
from sstq.mechanisms.agreement import Agreement
from sstq.mechanisms.laws import Law
from sstq.mechanisms.structured import typical_vector
from sstq.messages.arrays import as_vectors
from sstq.messages.batch import Messages, client_ids
from sstq.messages.layouts import Column, Layout
from sstq.messages.vectors import VectorFile
from sstq.randomness.secret import BitSource, RngLike, bit_source

__all__ = ["Coin", "ExpectedError", "LocalReport", "Mechanism", "Trust", "Unbiased"]

Coin = Literal["private", "public"]
"""Who draws what is public: the client, which then sends it, or a shared generator, which needs named clients."""

Trust = Literal["local", "aggregator", "none"]
"""Who has to be trusted: nobody, whoever adds the messages up, or all who see them, because there is no privacy."""

NUMBERS_OF_A_DRAW = 16
"""About how many numbers the draw of one message takes: words, what is made of them, and columns."""


class Unbiased(StrEnum):
    """When the expectation of an estimate is the (clipped) vector; only `ALWAYS` counts as true.

    Examples:
        >>> import sstq
        >>> [str(sstq.mechanism(name, dim=9, epsilon=1.0).unbiased) for name in ("sstq", "frameunit")]
        ['always', 'over frames']
        >>> bool(sstq.FrameUnit(9, 1.0).unbiased)
        False
    """

    NEVER = "never"
    OVER_FRAMES = "over frames"
    ALWAYS = "always"

    def __bool__(self) -> bool:
        return self is Unbiased.ALWAYS


@dataclass(frozen=True)
class ExpectedError:
    """The expected squared error of a mean.

    Attributes:
        bias2: the squared norm of its bias, which more clients do not lower.
        variance: summed over the coordinates, already divided by the number of clients.
    """

    bias2: float
    variance: float

    @property
    def total(self) -> float:
        """The mean squared error, bias² + variance."""
        return self.bias2 + self.variance


@dataclass
class LocalReport:
    """What a client may want to know of its own encoding. It depends on the data, so it must stay with the client.

    Attributes:
        vectors: how many were encoded.
        clipped: how many of them were longer than clip.
        missed: how many representations missed the certificate, so that their estimates are slightly biased (privacy
            is untouched).
    """

    vectors: int = 0
    clipped: int = 0
    missed: int = 0


class Mechanism(Agreement):
    """A randomizer of vectors and its decoder; immutable, shared by client and server through its JSON form.

    A mechanism of its own module provides the abstract methods; what all of them do alike is here: options are kept as
    they were given, `repr` shows them, and `replace` makes a variant.

    Attributes:
        dim: d, the length of the vectors.
        epsilon: ε of the local differential privacy of one message; infinite without privacy.
        delta: δ of the guarantee; 0 for pure differential privacy.
        clip: vectors longer than this are scaled down to it.
        clients: the number of clients of a round, where the mechanism is made for a fixed number; otherwise None.
        coin: who draws what is public, "private" or "public".
        exact: whether the implemented output distribution is ε-LDP exactly, integer by integer. Mechanisms with
            continuous outputs are private up to floating point only.
        trust: who has to be trusted, "local", "aggregator" or "none".
        uniform_index: whether a message's frame coordinate is drawn uniformly and without looking at the data.
        variants: what `sstq compare` shows of this mechanism: labels, and the options of each.
        sweeps: what `sstq frontier` shows of it: labels, and the options of each point of the family.
        unbiased: when the estimate's expectation is the (clipped) vector, over messages and public coins.
    """

    json_format: ClassVar[str] = "sstq-mechanism"
    name: ClassVar[str]
    exact: ClassVar[bool]
    trust: ClassVar[Trust] = "local"

    uniform_index: ClassVar[bool] = False
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    sweeps: ClassVar[Mapping[str, Sequence[Mapping[str, Any]]]] = {}

    dim: int
    epsilon: float
    delta: float = 0.0
    clip: float
    clients: int | None = None
    coin: Coin = "private"
    unbiased: Unbiased = Unbiased.ALWAYS

    def with_seed(self, seed: int) -> Self:
        """The same mechanism with another public seed, for the next round; itself, if nothing is public and random.

        Examples:
            >>> import sstq
            >>> mechanism = sstq.mechanism("vqsgd", dim=3, epsilon=1.0)
            >>> mechanism.with_seed(5) is mechanism
            True
            >>> sstq.SSTQ(10, 1.0).with_seed(5) == sstq.SSTQ(10, 1.0, frame_seed=5)
            True
        """
        return self if self.seed_option is None else self.replace(**{self.seed_option: seed})

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """The fields of a message."""

    @property
    def message_bits(self) -> int:
        """The bits that a client sends."""
        return self.layout.message_bits

    @abstractmethod
    def _encode_rows(
        self,
        rows: NDArray[Any],
        clients: NDArray[np.uint64] | None,
        source: BitSource,
        report: LocalReport | None,
    ) -> tuple[Column, ...]:
        """The columns of the messages for checked vectors, drawing the same number of words for any vector.

        Most begin with `_unit_ball`; who does without counts in the report how many were longer than clip.
        """

    @property
    def _row_cost(self) -> int:
        """How many numbers one row takes where all of its scores or candidates are computed."""
        return self.dim

    @property
    def _row_memory(self) -> int:
        """How many numbers the encoding of one row keeps; rows are taken accordingly few at a time."""
        return self._row_cost

    def encode(
        self, X: ArrayLike, rng: RngLike = None, *, clients: ArrayLike | None = None, report: LocalReport | None = None
    ) -> Messages:
        """Private messages, one for each row of X.

        Args:
            X: (d,) or (n, d), finite: floats, or what converts to them exactly, such as integers, tensors and columns
                of lists (`sstq.messages.arrays.as_vectors`). Rows longer than `clip` are scaled down to it.
            rng: None for the operating system's randomness (the private choice); an integer seed or a NumPy Generator
                for simulation, which the messages are then marked as.
            clients: behind a public coin, one distinct non-negative integer a row.
            report: counts what this client may want to know of its data; keep it local.

        Examples:
            >>> import sstq
            >>> mechanism = sstq.SSTQ(dim=3, epsilon=2.0, bits=2)
            >>> messages = mechanism.encode(np.array([0.1, -0.2, 0.3]))
            >>> len(messages), len(messages.to_bytes())
            (1, 1)
        """
        return self._encode_checked(self._check_vectors(X), bit_source(rng), clients, report)

    def encode_files(
        self,
        files: Iterable[VectorFile],
        rng: RngLike = None,
        *,
        clients: NDArray[np.uint64] | None = None,
        report: LocalReport | None = None,
        advance: Callable[[int], None] = lambda _: None,
    ) -> Iterator[Messages]:
        """Yield the messages of all vectors of files in order, a bounded piece at a time; the arguments of `encode`.

        `advance` is called with the number of vectors after each piece.
        """
        source, start = bit_source(rng), 0
        for file in files:
            for rows in file.chunks():
                ids = None if clients is None else clients[start : start + len(rows)]
                yield self._encode_checked(rows, source, ids, report)
                start += len(rows)
                advance(len(rows))

    def _encode_checked(
        self, rows: NDArray[Any], source: BitSource, clients: ArrayLike | None, report: LocalReport | None
    ) -> Messages:
        identifiers = self._client_ids(clients, len(rows))
        columns = self.layout.empty(len(rows))
        for part in row_chunks(len(rows), self._row_memory):
            ids = None if identifiers is None else identifiers[part]
            for column, values in zip(columns, self._encode_rows(rows[part], ids, source, report), strict=True):
                column[part] = values
        if report is not None:
            report.vectors += len(rows)
        return self._messages(columns, identifiers, source.simulated)

    @abstractmethod
    def decode(self, messages: Messages) -> NDArray[np.float64]:
        """The estimate of each message alone, (n, d): for diagnosis; a mean comes from `aggregator`."""

    def messages_from_bytes(self, raw: bytes, count: int, *, clients: ArrayLike | None = None) -> Messages:
        """The messages that `Messages.to_bytes` packed; ValueError for anything else.

        Examples:
            >>> import sstq
            >>> mechanism = sstq.SSTQ(dim=3, epsilon=2.0, bits=2)
            >>> messages = mechanism.encode(np.ones((4, 3)))
            >>> again = mechanism.messages_from_bytes(messages.to_bytes(), 4)
            >>> bool(np.all(again.column("index") == messages.column("index")))
            True
        """
        count = check_number("count", count, 0, 2**62, integer=True)
        return self.messages_from_columns(self.layout.unpack(raw, count), self._client_ids(clients, count), False)

    def messages_from_columns(
        self, columns: tuple[Column, ...], clients: NDArray[np.uint64] | None, simulated: bool
    ) -> Messages:
        """Checked messages from the values of their fields."""
        identifiers = self._client_ids(clients, len(columns[0]))
        self._check_columns(columns)
        return self._messages(columns, identifiers, simulated)

    def _messages(self, columns: tuple[Column, ...], clients: NDArray[np.uint64] | None, simulated: bool) -> Messages:
        in_clear = self.trust != "local"
        return Messages(self.layout, columns, self.digest(), clients=clients, simulated=simulated, in_clear=in_clear)

    def _check_columns(self, columns: tuple[Column, ...]) -> None:
        """Refuse values that the fields allow but this mechanism never sends."""

    @abstractmethod
    def aggregator(self) -> Aggregator[Any]:
        """An empty aggregator for this mechanism's messages."""

    def load_aggregator(self, path: str | os.PathLike[str]) -> Aggregator[Any]:
        """The aggregator that was saved to a file; ValueError unless it is whole and of this mechanism."""
        return type(self.aggregator()).load(path, self)

    def law(self) -> Law:
        """All probabilities of the secret draw as integers, for `sstq.audit`; ValueError where there are none.

        Examples:
            >>> import sstq
            >>> law = sstq.mechanism("vqsgd", dim=3, epsilon=1.0).law()
            >>> law.own + 5 * law.other == 2**62
            True
        """
        reasons = {
            "local": "sends continuous values, whose privacy holds up to floating point only (exact=False)",
            "aggregator": "is private behind a trusted aggregator only (a message on its own is not)",
            "none": "has no privacy at all",
        }
        raise ValueError(f"{self.name} {reasons[self.trust]}: there are no integer weights to audit")

    @abstractmethod
    def privacy_loss(self) -> float:
        """The largest log-ratio of the output distribution, rounded up to a double.

        Of the implemented distribution where `exact`, otherwise of the densities that floating point approximates.
        """

    def _header(self) -> dict[str, Any]:
        return super()._header() | {"mechanism": self.name}

    def largest_message(self) -> float:
        """R, the largest norm that the estimate of one valid message can have; for `sstq.planning.poisoning`."""
        raise ValueError(f"no bound is known for the messages of {self.name}")

    def largest_honest_mean(self) -> float:
        """H, the largest norm of an honest client's expected estimate, over messages and public coins.

        It is clip if the estimate is unbiased.
        """
        return self.clip if self.unbiased else self.largest_message()

    @abstractmethod
    def _row_error(self, rows: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """E[x̂] of each row, (n, d), and the variance of x̂ summed over the coordinates, (n,)."""

    def expected_mse(self, x: ArrayLike, clients: int | None = None) -> ExpectedError:
        """The expected squared error of a mean, bias and variance apart.

        Args:
            x: (d,), held by each of `clients` clients (1 if not given); or (n, d), one row for each of n clients.
            clients: the number of clients, with a single x.

        Returns:
            `bias2` is the squared distance of the expected mean from the mean of x as given, clipping included;
            `variance` that of the mean, already divided by the number of clients. Behind a public coin both are
            averages over the coin.

        Examples:
            >>> import sstq
            >>> mechanism = sstq.SSTQ(dim=4, epsilon=3.0, bits=2)
            >>> error = mechanism.expected_mse(np.full(4, 0.5), clients=100)
            >>> error.bias2 < 1e-9 < error.variance
            True
        """
        x = as_vectors(x, "x")
        rows = self._check_vectors(x)
        if np.ndim(x) == 2 and clients not in (None, len(rows)):
            raise ValueError(f"the {len(rows)} rows of x are the clients, got clients={clients!r}")
        repeats = 1 if clients is None or np.ndim(x) == 2 else check_number("clients", clients, 1, 2**62, integer=True)
        if not len(rows):
            raise ValueError("x must have at least one row")
        bias = np.zeros(self.dim)
        variance = 0.0
        for part in row_chunks(len(rows), self._row_cost):
            mean, variances = self._row_error(rows[part])
            with np.errstate(over="ignore"):
                bias += np.sum(mean - rows[part], axis=0)
            variance += float(np.sum(variances))
        count = len(rows)
        # The square of a huge clipped-off part may be infinite, which is then the truth to within a double.
        with np.errstate(over="ignore"):
            bias2 = float(np.sum((bias / count) ** 2))
        return ExpectedError(bias2, variance / (count * count * repeats))

    def typical_error(self, clients: int = 1) -> ExpectedError:
        """The error of a mean of clients that all hold one typical vector of norm clip: a fixed Gaussian direction.

        It costs less than the mean itself, if need be by an average over frame seeds.

        Examples:
            >>> import sstq
            >>> sstq.mechanism("vqsgd", dim=3, epsilon=1.0).typical_error(clients=10**6).total < 0.001
            True
        """
        return self.expected_mse(typical_vector(self.dim, self.clip), clients=clients)

    def _client_ids(self, clients: ArrayLike | None, count: int) -> NDArray[np.uint64] | None:
        if self.coin == "public":
            return client_ids(clients, count)
        if clients is not None:
            raise ValueError("clients are named behind a public coin only; this mechanism's coin is private")
        return None

    def _check_own(self, messages: Messages) -> None:
        if messages.digest != self.digest():
            raise ValueError("the messages are of another mechanism")

    def _check_vectors(self, X: ArrayLike) -> NDArray[Any]:
        """X as (n, d) floats; ValueError for a wrong shape or dtype, for masks and for numbers that are not finite."""
        rows = as_vectors(X)
        if rows.shape[-1:] != (self.dim,) or rows.ndim > 2:
            raise ValueError(f"X must have shape ({self.dim},) or (n, {self.dim}), got {rows.shape}")
        rows = np.atleast_2d(rows)
        if not kernels.all_finite(rows):
            row = next(row for row in range(len(rows)) if not np.isfinite(rows[row]).all())
            column = np.flatnonzero(~np.isfinite(rows[row]))[0]
            raise ValueError(f"X must be finite, got {rows[row, column]} at row {row}, column {column}")
        return rows

    def _unit_ball(self, rows: NDArray[Any], report: LocalReport | None = None) -> NDArray[np.float32]:
        """Rows clipped to norm `clip` and divided by it; the report counts those that were longer."""
        unit, longer = kernels.clip_to_ball(rows, self.clip)
        if report is not None:
            report.clipped += int(longer.sum())
        return unit
