"""A lower bound of ε from messages alone.

For each pair of inputs, one half of the messages selects the event that distinguishes them best, and the other half
tests it, so the test is valid for any selection. Clopper–Pearson bounds of the two probabilities give a bound
log(p/q) ≤ ε that is wrong with a stated probability, divided among the pairs (Bonferroni).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sstq.array_types import Floats, Ints
from sstq.checks import check_number
from sstq.kernels.threads import row_chunks
from sstq.mechanisms import Mechanism
from sstq.messages.batch import Messages
from sstq.messages.layouts import FloatField
from sstq.randomness.secret import bit_source

Labels = Ints
Pair = tuple[Any, Any]
"""What two people hold, as the mechanism's `encode` takes it."""

_BINS = 64
_BINS_PER_SIDE = 12
_WORD_BITS = 62


@dataclass(frozen=True)
class PairResult:
    """The result for one pair of inputs: a lower bound of ε.

    The event is a set of `event`; of the tested messages, `likely` of one input and `unlikely` of the other are in it.
    """

    pair: str
    event: str
    likely: int
    unlikely: int
    bound: float


@dataclass(frozen=True)
class EmpiricalAudit:
    """The result of an empirical audit.

    Attributes:
        epsilon: the budget that the mechanism states.
        alpha: the maximum probability that `lower_bound` is wrong.
        tested: how many messages of each input tested an event; no bound can exceed `reach`.
        results: one result per pair.
    """

    epsilon: float
    alpha: float
    tested: int
    reach: float
    results: tuple[PairResult, ...]

    @property
    def lower_bound(self) -> float:
        """A lower bound of the ε that the mechanism actually spends."""
        return max([0.0, *(result.bound for result in self.results)])

    @property
    def violation(self) -> bool:
        """Whether the messages show that more than ε is spent."""
        return self.lower_bound > self.epsilon


def worst_pairs(mechanism: Mechanism, rng: np.random.Generator) -> dict[str, Pair]:
    """Return named pairs of what people may hold that differ as much as they can.

    Vectors are opposites, spikes, constants, zero, near vectors and frame rows of norm clip.

    Examples:
        >>> import sstq
        >>> list(worst_pairs(sstq.FrameUnit(dim=3, epsilon=1.0), np.random.default_rng(0)))[:2]
        ['a Gaussian vector and its opposite', 'a spike and its opposite']
    """
    return mechanism.input.pairs(rng, mechanism.worst_directions)


def empirical_audit(
    mechanism: Mechanism,
    samples: int = 20_000,
    alpha: float = 1e-3,
    rng: int | None = None,
    pairs: Mapping[str, Pair] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> EmpiricalAudit:
    """Bound the ε of a locally private mechanism from below, treating the encoder as a black box.

    Args:
        mechanism: the mechanism to audit.
        samples: messages per input of a pair; half of them select an event, half of them test it.
        alpha: the maximum probability that a mechanism which keeps its ε is reported as a violation.
        rng: a seed to repeat the audit; by default the operating system's randomness.
        pairs: the pairs of inputs by name, by default `worst_pairs`.
        progress: called with the number of pairs done and the total.

    Examples:
        >>> import sstq
        >>> audit = empirical_audit(sstq.mechanism("vqsgd", dim=3, epsilon=1.0), rng=1)
        >>> audit.violation, 0.5 < audit.lower_bound <= 1.0
        (False, True)
    """
    samples = check_number("samples", samples, 100, 10**9, integer=True)
    alpha = check_number("alpha", alpha, 1e-12, 0.5)
    generator = np.random.default_rng(rng)
    pairs = worst_pairs(mechanism, generator) if pairs is None else pairs
    if not pairs:
        raise ValueError("pairs must not be empty, got none")
    share = alpha / (2 * len(pairs))
    tested = samples - samples // 2
    # One stream for all encodings, so that a seed repeats them; without a seed the operating system's randomness.
    source = None if rng is None else generator
    results = []
    for name, pair in pairs.items():
        results.append(_test_pair(mechanism, name, pair, samples, share, source))
        if progress is not None:
            progress(len(results), len(pairs))
    reach = float(_log_ratio(tested, 0, tested, share))
    return EmpiricalAudit(mechanism.epsilon, alpha, tested, reach, tuple(results))


def _test_pair(
    mechanism: Mechanism,
    name: str,
    pair: Pair,
    samples: int,
    share: float,
    source: np.random.Generator | None,
) -> PairResult:
    half = samples // 2
    inputs = mechanism.input.apart(pair)
    sent = [
        mechanism.encode_slots(
            np.broadcast_to(row, (samples, len(row))), bit_source(source), None, 1
        )
        for row in inputs
    ]
    choices = []
    for event, labels in _partitions(
        mechanism, sent, mechanism.input.truth(inputs), half
    ):
        for rows in (labels, labels[::-1]):
            likely, unlikely = (
                np.bincount(row[:half], minlength=labels.max() + 1) for row in rows
            )
            # The event is made of the labels with the highest ratios, as many as give the best bound.
            order = np.argsort(-(likely + 0.5) / (unlikely + 0.5), kind="stable")
            bounds = _log_ratio(
                np.cumsum(likely[order]), np.cumsum(unlikely[order]), half, share
            )
            best = int(np.argmax(bounds))
            choices.append((float(bounds[best]), event, order[: best + 1], rows))
    _, event, chosen, rows = max(choices, key=lambda choice: choice[0])
    hits, misses = (int(np.isin(row[half:], chosen).sum()) for row in rows)
    return PairResult(
        name,
        event,
        hits,
        misses,
        float(_log_ratio(hits, misses, samples - half, share)),
    )


def _log_ratio(likely: Any, unlikely: Any, count: int, share: float) -> Any:
    """log(p/q) for a lower bound p and an upper bound q (Clopper–Pearson), each wrong with probability `share`."""
    from scipy.stats import beta

    low = np.where(
        likely > 0, beta.ppf(share, np.maximum(likely, 1), count - likely + 1), 0.0
    )
    high = np.where(
        unlikely < count,
        beta.ppf(1 - share, unlikely + 1, np.maximum(count - unlikely, 1)),
        1.0,
    )
    with np.errstate(divide="ignore"):
        return np.log(low) - np.log(high)


def _partitions(
    mechanism: Mechanism, sent: list[Messages], inputs: Floats, half: int
) -> Iterator[tuple[str, Labels]]:
    """Yield classifications of the messages as labels, (2, n), which may depend only on the first half of messages."""
    layout = sent[0].layout
    # Continuous messages, and very long ones, do not occur twice.
    short = layout.message_bits <= _WORD_BITS and not any(
        isinstance(field, FloatField) for field in layout.fields
    )
    if short:
        columns = zip(*(messages.columns for messages in sent), strict=True)
        whole = np.hstack(
            [
                np.concatenate(column).reshape(2 * len(sent[0]), -1).astype(np.int64)
                for column in columns
            ]
        )
        yield (
            "messages",
            np.unique(whole, axis=0, return_inverse=True)[1].reshape(2, -1),
        )
    directions = np.stack([inputs[0] - inputs[1], *inputs], axis=1)
    chunks = row_chunks(len(sent[0]), mechanism.estimate_dim)
    scores = np.array(
        [
            np.vstack([mechanism.decode(rows[part]) @ directions for part in chunks])
            for rows in sent
        ]
    )
    yield "projections on the difference", _bins(scores[:, :, 0], half, _BINS)
    first, second = (
        _bins(scores[:, :, number], half, _BINS_PER_SIDE) for number in (1, 2)
    )
    yield "projections on both vectors", first * (_BINS_PER_SIDE + 1) + second


def _bins(scores: Any, half: int, count: int) -> Labels:
    """The bin of each score, between quantiles of the first half."""
    # Equal scores of different messages may differ by rounding; they belong together.
    rounded = np.round(scores / (np.abs(scores[:, :half]).max() or 1.0), 9)
    edges = np.unique(
        np.quantile(rounded[:, :half], np.linspace(0, 1, count + 1)[1:-1])
    )
    return np.asarray(np.searchsorted(edges, rounded, side="right"))
