"""Test that the encoder follows its integers, exactly, over its secret words.

For a vector and fixed other words, the encoder must follow one case of the law: all words of a cell give one outcome,
and different cells give different outcomes. `check_encoder` tries both ends of a cell in every word, and a place in
between. If that holds for all cells, each outcome has exactly its cell's probability, so the encoder's
distribution is that of the integers.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sstq.array_types import Floats, Ints, Words
from sstq.kernels.threads import row_chunks
from sstq.mechanisms import Mechanism
from sstq.scalar.laws import Box, EitherLaw, Law, mass

_CELLS_AT_LEAST = 8
_CELLS_AT_MOST = 4096
# Fewer vectors and cells are tried if a message is expensive: about this many numbers are computed in total.
_WORK = 1 << 27
_COSTLY = 1 << 16
_SAMPLE = 4


@dataclass
class _Script:
    """A source that returns given words, or zeros, and records how many were requested."""

    given: Words | None = None
    asked: int = 0
    simulated = True

    def words(self, count: int) -> Words:
        start = self.asked
        self.asked = self.asked + count
        return (
            np.zeros(count, dtype=np.uint64)
            if self.given is None
            else self.given[start : self.asked].copy()
        )


def _encode(mechanism: Mechanism, row: Floats, source: _Script, count: int = 1) -> Ints:
    """The first column of as many messages of one vector, as rows of integers."""
    column = mechanism.encode_rows(np.tile(row, (count, 1)), source, None)[0]
    return column.reshape(count, -1).astype(np.int64)


def _words_of(mechanism: Mechanism, row: Floats) -> int:
    """How many words the encoder requests for this vector."""
    source = _Script()
    _encode(mechanism, row, source)
    return source.asked


@dataclass(frozen=True)
class _Situation:
    """A vector, and all words of a message, of which those that make the draw are replaced."""

    mechanism: Mechanism
    row: Floats
    frozen: Words

    def encode(self, draws: Words) -> Ints:
        """The outcome for each row of 62-bit words of the draw."""
        places = self.mechanism.law().words
        parts = []
        for part in row_chunks(len(draws), self.mechanism.row_cost):
            words = np.tile(self.frozen, (part.stop - part.start, 1))
            words[:, places] = draws[part] << np.uint64(2)
            parts.append(
                _encode(
                    self.mechanism, self.row, _Script(words.reshape(-1)), len(words)
                )
            )
        return np.concatenate(parts)

    def corners(self, boxes: list[Box], rng: np.random.Generator) -> Ints:
        """What is sent at all corners of the boxes and somewhere within, (boxes, corners + 1, width of an outcome)."""
        draws = []
        for box in boxes:
            inner = tuple(
                int(rng.integers(low, high, endpoint=True)) for low, high in box
            )
            draws += [*itertools.product(*box), inner]
        sent = self.encode(np.array(draws, dtype=np.uint64))
        return sent.reshape(len(boxes), -1, sent.shape[1])


@dataclass(frozen=True)
class EncoderCheck:
    """The result of running the encoder on chosen words.

    Attributes:
        situations: the number of pairs of a vector and fixed words that were tried.
        cells: the number of cells of the law tried in each; `complete` if these are all.
        words: the number of random words per message, the same for every vector.
        ratio: the largest ratio of the probabilities of one outcome that was found.
        problem: what is wrong; empty if nothing is.
    """

    situations: int
    cells: int
    complete: bool
    words: int
    ratio: Fraction
    problem: str = ""


def _situations(mechanism: Mechanism, rng: np.random.Generator) -> list[_Situation]:
    """Structured vectors with their opposites, a short one, a huge one and zero, or records.

    There are fewer vectors if a message is expensive.

    Each comes with other words and with their complements: if the words round zero, whose coordinates are all alike, to
    one side, the complements round it to the other, so that more than one case of the law is met whatever is drawn.
    """
    extremes = [
        mechanism.input.read(**one) for one in mechanism.input.extremes(rng).values()
    ]
    if mechanism.row_cost >= _COSTLY:
        extremes = [extremes[0], extremes[-1]]
    rows = np.concatenate(extremes)
    inputs = np.concatenate([rows, mechanism.input.variations(rows)])
    frozen = rng.integers(
        0, 1 << 64, size=_words_of(mechanism, inputs[0]), dtype=np.uint64
    )
    return [
        _Situation(mechanism, row, words)
        for words in (frozen, ~frozen)
        for row in inputs
    ]


def check_encoder(
    mechanism: Mechanism,
    rng: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> EncoderCheck:
    """Compare the encoder with the law of its integers, exactly; on a sample if there are too many cells.

    Args:
        mechanism: a mechanism with `exact` = True.
        rng: a seed for the vectors and the other words; by default fresh ones.
        progress: called with the number of situations done and the total.

    Examples:
        >>> import sstq
        >>> mechanism = sstq.mechanism("vqsgd", dim=3, epsilon=1.0)
        >>> check = check_encoder(mechanism)
        >>> check.complete, check.problem, check.ratio == mechanism.law().ratio()
        (True, '', True)
    """
    law = mechanism.law()
    generator = np.random.default_rng(rng)
    tried = _situations(mechanism, generator)
    widths = {_words_of(mechanism, situation.row) for situation in tried}
    affordable = _WORK // (mechanism.row_cost * len(tried) * (1 + 2 ** len(law.words)))
    limit = max(_CELLS_AT_LEAST, min(_CELLS_AT_MOST, affordable))
    shares: defaultdict[tuple[int, bytes], set[Fraction]] = defaultdict(set)
    cells = 0
    problem = (
        ""
        if len(widths) == 1
        else f"the number of random words depends on the vector: {sorted(widths)}"
    )
    for number, situation in enumerate([] if problem else tried):
        followed = _outcomes(situation, law, limit, generator)
        if followed is None:
            problem = f"vector {number} does not follow the law: its messages have other probabilities"
            break
        draw, outcomes = followed
        cells = max(cells, len(outcomes))
        # A z that is orthogonal to v comes from itself alone, any other outcome from z and from −z.
        scale = (
            Fraction(1, 2)
            if law.kind == "half-space" and len(outcomes) == 1
            else Fraction(1)
        )
        for outcome, share in outcomes.items():
            shares[draw, outcome].add(share * scale)
        if progress is not None:
            progress(number + 1, len(tried))
    ratio = max((max(met) / min(met) for met in shares.values()), default=Fraction(1))
    complete = max(map(law.cells, range(law.cases))) <= limit
    return EncoderCheck(len(tried), cells, complete, max(widths), ratio, problem)


def _outcomes(
    situation: _Situation, law: Law | EitherLaw, limit: int, rng: np.random.Generator
) -> tuple[int, dict[bytes, Fraction]] | None:
    """Return which of several draws was made, and the probability of each outcome, over at most `limit` cells.

    None if the encoder follows no case of the law.
    """
    for case in _plausible_cases(situation, law, rng):
        count = law.cells(case)
        places = (
            range(count)
            if count <= limit
            else sorted(map(int, rng.choice(count, size=limit, replace=False)))
        )
        boxes = law.boxes(case, places)
        corners = situation.corners(boxes, rng)
        if not _all_same(corners):
            continue
        sent = corners[:, 0]
        draw, row = law.part_of(case)
        part = law.parts[draw]
        if part.kind == "table" and np.any(
            sent[:, 0] != np.flatnonzero(part.weights[row])[list(places)]
        ):
            continue
        names = [row.tobytes() for row in sent]
        if law.kind == "half-space":
            if np.array_equal(*sent):
                return draw, {names[0]: Fraction(1)}  # orthogonal to v: z stays
            if np.any(sent.sum(axis=0) != 1):
                continue
        if len(set(names)) == len(names):
            return draw, dict(zip(names, map(mass, boxes), strict=True))
    return None


def _plausible_cases(
    situation: _Situation, law: Law | EitherLaw, rng: np.random.Generator
) -> list[int]:
    """The cases that a few words do not rule out, because trying all cells of hundreds of cases takes long."""
    if law.cases == 1:
        return [0]
    samples = [
        law.boxes(case, rng.integers(law.cells(case), size=_SAMPLE).tolist())
        for case in range(law.cases)
    ]
    corners = situation.corners([box for boxes in samples for box in boxes], rng)
    return [
        case
        for case, some in enumerate(np.split(corners, law.cases))
        if _all_same(some)
    ]


def _all_same(corners: Ints) -> bool:
    """Whether each box has one outcome."""
    return bool(np.all(corners == corners[:, :1]))
