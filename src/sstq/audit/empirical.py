"""A lower bound of ε from messages alone.

For each pair of inputs, one half of the messages chooses the event that tells them apart best, and the other half tests
it. Clopper–Pearson bounds of the two probabilities give a bound log(p/q) ≤ ε that is wrong with a stated probability,
shared out over the pairs (Bonferroni): it holds for all pairs at once. Choosing and testing on different messages keeps
it honest, whatever the choice is.

Behind a public coin every client has its own coin, so its events have their own probabilities. Their averages over the
same clients differ by at most e^ε, too, and Clopper–Pearson bounds hold for the average of independent events that are
not alike: their number is more concentrated than a binomial one (W. Hoeffding, *On the distribution of the number of
successes in independent trials*, 1956, Theorem 4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.audit.pairs import worst_pairs
from sstq.checks import check_number
from sstq.chunks import row_chunks
from sstq.mechanisms import Mechanism
from sstq.messages.batch import Messages
from sstq.messages.layouts import FloatField

__all__ = ["EmpiricalAudit", "PairResult", "empirical_audit"]

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

_BINS, _BINS_A_SIDE = 64, 12
_WORD_BITS = 62


@dataclass(frozen=True)
class PairResult:
    """What the messages of one pair of inputs show.

    Attributes:
        pair: its name.
        event: what the event that was tested is a set of.
        likely: how many of the tested messages of one input are in the event.
        unlikely: how many of as many messages of the other input are.
        bound: of ε from below.
    """

    pair: str
    event: str
    likely: int
    unlikely: int
    bound: float


@dataclass(frozen=True)
class EmpiricalAudit:
    """What the messages show in all.

    Attributes:
        epsilon: the budget that the mechanism states.
        alpha: the probability that `lower_bound` is wrong is at most this.
        tested: how many messages of each input tested an event.
        reach: the largest bound that so many messages could give.
        results: one for each pair.
    """

    epsilon: float
    alpha: float
    tested: int
    reach: float
    results: tuple[PairResult, ...]

    @property
    def lower_bound(self) -> float:
        """A lower bound of the ε that the mechanism really spends."""
        return max([0.0, *(result.bound for result in self.results)])

    @property
    def violation(self) -> bool:
        """Whether the messages show that more than ε is spent."""
        return self.lower_bound > self.epsilon


def empirical_audit(
    mechanism: Mechanism,
    samples: int = 20_000,
    alpha: float = 1e-3,
    rng: int | None = None,
    pairs: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> EmpiricalAudit:
    """Bound ε from below, taking the encoder as a black box.

    Args:
        mechanism: one with local privacy.
        samples: messages of each input of a pair; half of them choose an event, half of them test it.
        alpha: the probability that a mechanism which keeps its ε is found in violation is at most this.
        rng: a seed to repeat the audit; the operating system's randomness if not given.
        pairs: the pairs of inputs by name, `worst_pairs` if not given.
        progress: called with the number of pairs done and of all.

    Examples:
        >>> import sstq
        >>> mechanism = sstq.mechanism("vqsgd", dim=3, epsilon=1.0)
        >>> audit = empirical_audit(mechanism, rng=1)
        >>> audit.violation, 0.5 < audit.lower_bound <= 1.0
        (False, True)
    """
    if mechanism.trust != "local":
        raise ValueError(f"{mechanism.name} promises no local privacy (trust={mechanism.trust!r}): nothing to audit")
    samples = check_number("samples", samples, 100, 10**9, integer=True)
    alpha = check_number("alpha", alpha, 1e-12, 0.5)
    generator = np.random.default_rng(rng)
    pairs = worst_pairs(mechanism, generator) if pairs is None else pairs
    if not pairs:
        raise ValueError("pairs must not be empty")
    share, tested = alpha / (2 * len(pairs)), samples - samples // 2
    # One stream for all encodings, so that a seed repeats them; none, so that the operating system's is tried.
    source = None if rng is None else generator
    results = []
    for name, (x, other) in pairs.items():
        results.append(_test_pair(mechanism, name, np.asarray(x), np.asarray(other), samples, share, source))
        if progress is not None:
            progress(len(results), len(pairs))
    reach = float(_log_ratio(np.array([tested]), np.array([0]), tested, share)[0])
    return EmpiricalAudit(mechanism.epsilon, alpha, tested, reach, tuple(results))


def _test_pair(
    mechanism: Mechanism,
    name: str,
    x: Floats,
    other: Floats,
    samples: int,
    share: float,
    source: np.random.Generator | None,
) -> PairResult:
    half = samples // 2
    # Both inputs meet the same public coins.
    clients = None if mechanism.coin == "private" else np.arange(samples)
    sent = [
        mechanism.encode(np.broadcast_to(vector, (samples, len(x))), rng=source, clients=clients)
        for vector in (x, other)
    ]
    best: tuple[float, str, NDArray[np.bool_], Labels, bool] | None = None
    for event, labels in _partitions(mechanism, sent, x, other, half):
        counts = [np.bincount(row[:half], minlength=labels.max() + 1) for row in labels]
        for swapped in (False, True):
            likely, unlikely = counts[::-1] if swapped else counts
            chosen, bound = _choose(likely, unlikely, half, share)
            if best is None or bound > best[0]:
                best = bound, event, chosen, labels, swapped
    assert best is not None  # noqa: S101 (there is always the partition by projections)
    _, event, chosen, labels, swapped = best
    hits = [np.array([np.count_nonzero(chosen[row[half:]])]) for row in labels]
    likely, unlikely = hits[::-1] if swapped else hits
    bound = float(_log_ratio(likely, unlikely, samples - half, share)[0])
    return PairResult(name, event, int(likely[0]), int(unlikely[0]), bound)


def _choose(likely: Labels, unlikely: Labels, count: int, share: float) -> tuple[NDArray[np.bool_], float]:
    """Which labels make the event: those of the highest ratios, as many as give the best bound."""
    order = np.argsort(-(likely + 0.5) / (unlikely + 0.5), kind="stable")
    bounds = _log_ratio(np.cumsum(likely[order]), np.cumsum(unlikely[order]), count, share)
    last = int(np.argmax(bounds))
    chosen = np.zeros(len(order), dtype=np.bool_)
    chosen[order[: last + 1]] = True
    return chosen, float(bounds[last])


def _log_ratio(likely: Labels, unlikely: Labels, count: int, share: float) -> Floats:
    """log(p/q) for a lower bound p and an upper bound q (Clopper–Pearson), each wrong with probability `share`."""
    from scipy.stats import beta

    low = np.where(likely > 0, beta.ppf(share, np.maximum(likely, 1), count - likely + 1), 0.0)
    high = np.where(unlikely < count, beta.ppf(1 - share, unlikely + 1, np.maximum(count - unlikely, 1)), 1.0)
    with np.errstate(divide="ignore"):
        bounds: Floats = np.log(low) - np.log(high)
    return bounds


def _partitions(
    mechanism: Mechanism, sent: list[Messages], x: Floats, other: Floats, half: int
) -> list[tuple[str, Labels]]:
    """Ways to put messages into classes, as labels (2, n); they may look at the first half of the messages only."""
    partitions: list[tuple[str, Labels]] = []
    if mechanism.coin == "private" and _is_integer(sent[0]):
        _, labels = np.unique(np.stack([_as_integers(messages) for messages in sent]), return_inverse=True)
        partitions.append(("messages", labels.reshape(2, -1)))
    directions = np.stack([x - other, x, other], axis=1)
    scores = np.stack([_projections(mechanism, messages, directions) for messages in sent])
    names = ("difference", "first vector", "second vector")
    for number, name in enumerate(names):
        if np.any(directions[:, number]):
            binned = _bins(scores[:, :, number], half, _BINS)
            partitions.append((f"projections on the {name}", binned))
    joint = _bins(scores[:, :, 1], half, _BINS_A_SIDE) * (_BINS_A_SIDE + 1) + _bins(scores[:, :, 2], half, _BINS_A_SIDE)
    return [*partitions, ("projections on both vectors", joint)]


def _is_integer(messages: Messages) -> bool:
    """Whether a whole message fits into an integer: continuous ones do not, nor very long ones."""
    layout = messages.layout
    return layout.message_bits <= _WORD_BITS and not any(isinstance(field, FloatField) for field in layout.fields)


def _as_integers(messages: Messages) -> NDArray[np.int64]:
    joined = np.zeros(len(messages), dtype=np.int64)
    for field, column in zip(messages.layout.fields, messages.columns, strict=True):
        for entry in column.reshape(len(messages), -1).T:
            joined = joined << field.bits | entry.astype(np.int64)
    return joined


def _projections(mechanism: Mechanism, messages: Messages, directions: Floats) -> Floats:
    projected = [mechanism.decode(messages[part]) @ directions for part in row_chunks(len(messages), mechanism.dim)]
    return np.concatenate(projected)


def _bins(scores: Any, half: int, count: int) -> Labels:
    """The bin of each score, between quantiles of the first half."""
    # Equal scores of different messages may differ by rounding; they belong together.
    rounded = np.round(scores / (np.abs(scores[:, :half]).max() or 1.0), 9)
    edges = np.unique(np.quantile(rounded[:, :half], np.linspace(0, 1, count + 1)[1:-1]))
    labels: Labels = np.searchsorted(edges, rounded, side="right")
    return labels
