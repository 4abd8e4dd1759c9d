"""Aggregation: an exact, mergeable, resumable sum of messages, and the mean with its error bar.

The state is one row of integers a frame coordinate: the number of messages, the sum of their decoded values in fixed
point (two limbs) and the sum of their squares. Integers add up to the same bits in any order and any partition. The
fixed-point unit is a power of two at least 2^-60 below the largest decoded value, finer than the values' own rounding.
"""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sstq import kernels
from sstq.atomic import atomic_file
from sstq.frames import Frame
from sstq.message_files import MessageReader, read_messages
from sstq.messages import Messages

__all__ = ["Aggregator", "Estimate", "FrameDecoding", "StateInfo", "describe_state"]

# Limbs of 30 bits and squares of 30 bits leave room for 2^32 messages in 63 bits.
_LIMB_BITS = 30
_MOST_MESSAGES = 1 << 32
_STATE_FORMAT = "sstq-aggregate"
_STATE_VERSION = 1


@dataclass(frozen=True)
class Estimate:
    """The mean of the clients' vectors.

    Attributes:
        value: the mean, (d,).
        stderr: the standard error of each coordinate around the estimator's expectation, (d,), from the messages
            themselves. The bias of a biased decoder is not in it. nan for a single message.
        count: the number of messages.
        simulated: whether any of them came from a seed.
    """

    value: NDArray[np.float64]
    stderr: NDArray[np.float64]
    count: int
    simulated: bool = False


@dataclass(frozen=True)
class StateInfo:
    """What the file of a saved aggregator says: how many messages, from how many files, for which mechanism."""

    version: int
    digest: str
    count: int
    frame_size: int
    files: int
    simulated: bool


class FrameDecoding(MessageReader, Protocol):
    """What an aggregator needs of a mechanism whose estimate from one message is d·w·u_j."""

    @property
    def frame(self) -> Frame:
        """The frame whose rows the u_j are."""
        ...

    @property
    def decoding_values(self) -> NDArray[np.float64]:
        """The decoded coordinate w of every code, in units of `decoding_scale`."""
        ...

    @property
    def decoding_scale(self) -> float:
        """The unit of the decoding values."""
        ...

    def indices_and_codes(self, messages: Messages) -> tuple[NDArray[Any], NDArray[Any]]:
        """The frame coordinate and the code of every message."""
        ...


class Aggregator:
    """Adds messages of one mechanism in the frame domain; one synthesis gives the mean.

    Examples:
        >>> import sstq
        >>> mechanism = sstq.SSTQ(dim=4, epsilon=4.0, bits=2)
        >>> aggregator = mechanism.aggregator()
        >>> aggregator.update(mechanism.encode(np.full((1000, 4), 0.5), rng=1))
        >>> estimate = aggregator.mean()
        >>> estimate.count, bool(np.all(np.abs(estimate.value - 0.5) < 6 * estimate.stderr))
        (1000, True)
    """

    def __init__(self, mechanism: FrameDecoding) -> None:
        self._mechanism = mechanism
        self._table, self._exponent = _fixed_point(mechanism.decoding_values)
        self._state = np.zeros((mechanism.frame.size, 4), dtype=np.int64)
        self._count = 0
        self._simulated = False
        self._sources: set[str] = set()

    @property
    def count(self) -> int:
        """The number of messages so far."""
        return self._count

    @property
    def digest(self) -> str:
        """The fingerprint of the mechanism whose messages are added."""
        return self._mechanism.digest()

    def update(self, messages: Messages) -> None:
        """Add a batch. A batch that is refused (ValueError) changes nothing."""
        self._refuse_foreign(messages.digest, "messages are")
        self._refuse_overflow(len(messages))
        index, code = self._mechanism.indices_and_codes(messages)
        kernels.accumulate(self._state, index, code, self._table)
        self._count += len(messages)
        self._simulated |= messages.simulated

    def update_from_file(self, path: str | os.PathLike[str]) -> bool:
        """Add all messages of a file, or nothing if it is refused (ValueError).

        A file whose content is in already is passed over, so that a run that was cut short can simply be repeated;
        returns whether the file was added.
        """
        before = _identity(path)
        fingerprint = _content_hash(path)
        if fingerprint in self._sources:
            return False
        part = Aggregator(self._mechanism)
        for messages in read_messages(path, self._mechanism):
            part.update(messages)
        if _identity(path) != before:
            raise ValueError(f"{os.fspath(path)} changed while it was read; nothing of it was added")
        part._sources = {fingerprint}
        self.merge(part)
        return True

    def merge(self, other: Aggregator) -> None:
        """Add what another aggregator of the same mechanism holds; the result is that of one pass over both.

        Two aggregators that hold the same file are refused: its messages would count twice.
        """
        self._refuse_foreign(other.digest, "the other aggregator is")
        self._refuse_overflow(other.count)
        if self._sources & other._sources:
            raise ValueError("both aggregators hold the same message file: its messages would count twice")
        self._state += other._state
        self._sources |= other._sources
        self._count += other._count
        self._simulated |= other._simulated

    def mean(self) -> Estimate:
        """The mean so far and its standard error."""
        if not self._count:
            raise ValueError("no message yet: a mean needs at least one")
        frame, count = self._mechanism.frame, self._count
        scale = self._mechanism.decoding_scale
        units = np.ldexp(self._state[:, 1].astype(np.float64), _LIMB_BITS) + self._state[:, 2]
        total = np.ldexp(units, self._exponent - 2 * _LIMB_BITS) * scale
        value = np.asarray(frame.synthesize(total[None] * (frame.size / count))[0], dtype=np.float64)
        if count == 1:
            return Estimate(value, np.full(frame.dim, np.nan), count, self._simulated)
        squares = np.ldexp(self._state[:, 3].astype(np.float64), 2 * self._exponent - _LIMB_BITS)
        second_moment = frame.column_power(squares) * ((frame.dim * scale) ** 2 / count)
        variance = np.maximum(second_moment - value**2, 0.0)
        return Estimate(value, np.sqrt(variance / (count - 1)), count, self._simulated)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, which is there whole or not at all (an .npz; the name is taken as it is)."""
        with atomic_file(path) as file:
            np.savez(
                file,
                format=np.array(_STATE_FORMAT),
                version=np.array(_STATE_VERSION),
                digest=np.array(self.digest),
                simulated=np.array(self._simulated),
                sources=np.array(sorted(self._sources), dtype="U64"),
                state=self._state,
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str], mechanism: FrameDecoding) -> Aggregator:
        """The aggregator that `save` wrote, for the same mechanism; ValueError for anything else."""
        info, state, sources = _read_state(path)
        loaded = cls(mechanism)
        loaded._refuse_foreign(info.digest, f"{os.fspath(path)} is")
        if state.shape != loaded._state.shape:
            raise ValueError(f"{os.fspath(path)} has {len(state)} rows, the mechanism's frame {len(loaded._state)}")
        loaded._state = state
        loaded._count = info.count
        loaded._simulated = info.simulated
        loaded._sources = sources
        return loaded

    def _refuse_foreign(self, digest: str, what: str) -> None:
        if digest != self.digest:
            raise ValueError(f"{what} of another mechanism: digest {digest[:16]}…, expected {self.digest[:16]}…")

    def _refuse_overflow(self, added: int) -> None:
        if self._count + added > _MOST_MESSAGES:
            raise ValueError(f"an aggregator holds at most 2^32 messages, got {self._count} and {added} more")


def _fixed_point(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """The decoding values as integers: a (M, 3) table (high limb, low limb, square) and the exponent of their bound.

    With |w| ≤ 2^e: high·2^30 + low = w·2^(60−e) and square = w²·2^(30−2e), both to the nearest integer.
    """
    largest = float(np.max(np.abs(values)))
    exponent = math.frexp(largest)[1]
    rows = []
    for value in values.tolist():
        scaled = round(Fraction(value) * Fraction(2) ** (2 * _LIMB_BITS - exponent))
        square = round(Fraction(value) ** 2 * Fraction(2) ** (_LIMB_BITS - 2 * exponent))
        rows.append((scaled >> _LIMB_BITS, scaled & ((1 << _LIMB_BITS) - 1), square))
    return np.array(rows, dtype=np.int64), exponent


def _identity(path: str | os.PathLike[str]) -> tuple[int, int, int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _content_hash(path: str | os.PathLike[str]) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_state(path: str | os.PathLike[str]) -> StateInfo:
    """What a saved state says of itself; ValueError if the file is damaged or something else."""
    return _read_state(path)[0]


def _read_state(path: str | os.PathLike[str]) -> tuple[StateInfo, NDArray[np.int64], set[str]]:
    name = os.fspath(path)
    try:
        # np.load leaves a file that it opened itself open when it fails.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            stored = {key: archive[key] for key in archive.files}
    except (ValueError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise ValueError(f"{name} is damaged or not an aggregator's state: {error}") from error
    if (
        str(stored.get("format")) != _STATE_FORMAT
        or not {"version", "digest", "simulated", "sources", "state"} <= stored.keys()
    ):
        raise ValueError(f"{name} is not an aggregator's state")
    version = int(stored["version"])
    if version != _STATE_VERSION:
        raise ValueError(f"{name} has version {version} of the format, this library reads version {_STATE_VERSION}")
    state, sources = stored["state"], set(stored["sources"].tolist())
    if state.dtype != np.int64 or state.ndim != 2 or state.shape[1] != 4 or np.any(state[:, 0] < 0):
        raise ValueError(f"{name} does not hold the sums of an aggregator")
    count = int(state[:, 0].sum())
    info = StateInfo(version, str(stored["digest"]), count, len(state), len(sources), bool(stored["simulated"]))
    return info, state, sources
