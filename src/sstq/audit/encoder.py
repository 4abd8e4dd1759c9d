"""Driving the encoder through what its secret words can do, to find the law that its integers promise.

For a vector and fixed other words, the encoder must follow one case of the law: all words of a cell give one outcome,
and different cells give different outcomes. Both ends of a cell are tried in every word, and a place in between. Where
that holds for all cells, each outcome has exactly its cell's probability, so that the encoder's distribution is the
integers' and not only meant to be.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sstq.chunks import row_chunks
from sstq.mechanisms import Mechanism
from sstq.mechanisms.laws import Box, HalfSpaceLaw, Law, TableLaw, TwoLevelLaw, mass
from sstq.mechanisms.structured import structured_vectors

__all__ = ["EncoderCheck", "Situation", "check_encoder", "situations"]

Words = NDArray[np.uint64]

_CELLS_AT_LEAST, _CELLS_AT_MOST = 8, 4096
# Vectors and cells are fewer where a message costs much: about so many numbers are computed in all.
_WORK = 1 << 27
_COSTLY = 1 << 16
_SAMPLE = 4
_CLIENT = 5


class _Script:
    """A source that hands out given words and notes how many were asked for."""

    simulated = True

    def __init__(self, words: Words | None = None) -> None:
        self._words = words
        self.asked = 0

    def words(self, count: int) -> Words:
        start, self.asked = self.asked, self.asked + count
        return np.zeros(count, dtype=np.uint64) if self._words is None else self._words[start : self.asked].copy()


@dataclass(frozen=True)
class Situation:
    """A vector, the words that do not make the draw, and what the encoder does with those that do.

    Attributes:
        mechanism: whose encoder it is.
        row: the vector.
        frozen: all words of a message; those of the draw are replaced.
    """

    mechanism: Mechanism
    row: NDArray[np.float64]
    frozen: Words

    def encode(self, draws: Words) -> NDArray[np.int64]:
        """The outcome for each row of 62-bit words of the draw."""
        places = self.mechanism.law().words
        parts = []
        for part in row_chunks(len(draws), self.mechanism._row_cost):
            words = np.tile(self.frozen, (part.stop - part.start, 1))
            words[:, places] = draws[part] << np.uint64(2)
            rows = np.tile(self.row, (len(words), 1))
            clients = None if self.mechanism.coin == "private" else np.full(len(words), _CLIENT, dtype=np.uint64)
            column = self.mechanism._encode_rows(rows, clients, _Script(words.reshape(-1)), None)[0]
            parts.append(column.reshape(len(words), -1).astype(np.int64))
        return np.concatenate(parts)


@dataclass(frozen=True)
class EncoderCheck:
    """What driving the encoder found.

    Attributes:
        situations: how many pairs of a vector and frozen words were tried.
        cells: how many cells of the law were tried in each.
        complete: whether those are all cells.
        words: the random words of a message, the same for every vector.
        ratio: the largest ratio of the probabilities of one outcome that was met.
        problem: what is wrong, empty if nothing is.
    """

    situations: int
    cells: int
    complete: bool
    words: int
    ratio: Fraction
    problem: str = ""


def situations(mechanism: Mechanism, rng: np.random.Generator) -> list[Situation]:
    """Structured vectors with their opposites, a short, a huge one and zero, with other words and their complements.

    Words that round zero, whose coordinates are all alike, to one side have complements that round it to the other:
    more than one case of the law is met whatever is drawn, which two independent sets of words do not promise.

    Where a message costs much, the vectors are a random one, a spike, their opposites and zero.

    Examples:
        >>> import sstq
        >>> len(situations(sstq.mechanism("vqsgd", dim=3, epsilon=1.0), np.random.default_rng(1)))
        38
    """
    costly = mechanism._row_cost >= _COSTLY
    vectors = structured_vectors(mechanism.dim, rng)
    rows = np.concatenate([vectors[name][:1] for name in (("gaussian", "spike") if costly else vectors)])
    rows = np.concatenate([rows, -rows, 0.0 * rows[:1]])
    if not costly:
        rows = np.concatenate([rows, 0.3 * rows[:1], 1e200 * rows[:1]])
    frozen = rng.integers(0, 1 << 64, size=_words_of(mechanism, rows[0]), dtype=np.uint64)
    return [Situation(mechanism, row, words) for words in (frozen, ~frozen) for row in mechanism.clip * rows]


def check_encoder(
    mechanism: Mechanism, rng: int | None = None, progress: Callable[[int, int], None] | None = None
) -> EncoderCheck:
    """Compare the encoder with the law of its integers, exactly; where there are too many cells, for a sample of them.

    Args:
        mechanism: one that is exact.
        rng: a seed for the vectors and the other words, fresh ones if not given.
        progress: called with the number of situations done and of all.

    Examples:
        >>> import sstq
        >>> mechanism = sstq.mechanism("vqsgd", dim=3, epsilon=1.0)
        >>> check = check_encoder(mechanism)
        >>> check.complete, check.problem, check.ratio == mechanism.law().ratio()
        (True, '', True)
    """
    law, generator = mechanism.law(), np.random.default_rng(rng)
    tried = situations(mechanism, generator)
    widths = {_words_of(mechanism, situation.row) for situation in tried}
    affordable = _WORK // (mechanism._row_cost * len(tried) * (1 + 2 ** len(law.words)))
    limit = max(_CELLS_AT_LEAST, min(_CELLS_AT_MOST, affordable))
    extremes: dict[bytes, tuple[Fraction, Fraction]] = {}
    cells = 0
    problem = "" if len(widths) == 1 else f"the number of random words depends on the vector: {sorted(widths)}"
    for number, situation in enumerate(tried):
        if problem:
            break
        found = outcomes(situation, law, limit, generator)
        if found is None:
            problem = f"vector {number} follows no case of the law: its messages have other probabilities"
            break
        cells = max(cells, len(found))
        # A z that is orthogonal to v comes from itself alone, any other outcome from z and from −z.
        scale = Fraction(1, 2) if isinstance(law, HalfSpaceLaw) and len(found) == 1 else Fraction(1)
        for outcome, share in found.items():
            probability = share * scale
            low, high = extremes.get(outcome, (probability, probability))
            extremes[outcome] = min(low, probability), max(high, probability)
        if progress is not None:
            progress(number + 1, len(tried))
    ratio = max((high / low for low, high in extremes.values()), default=Fraction(1))
    complete = max(map(law.cells, range(law.cases))) <= limit
    return EncoderCheck(len(tried), cells, complete, max(widths), ratio, problem)


def outcomes(situation: Situation, law: Law, limit: int, rng: np.random.Generator) -> dict[bytes, Fraction] | None:
    """The probability of each outcome, of at most `limit` cells; None if the encoder follows no case of the law."""
    for case in _plausible_cases(situation, law, rng):
        count = law.cells(case)
        places = range(count) if count <= limit else sorted(map(int, rng.choice(count, size=limit, replace=False)))
        boxes = law.boxes(case, places)
        sent = _constant(situation, boxes, rng)
        if sent is None:
            continue
        masses = [mass(box) for box in boxes]
        if isinstance(law, TableLaw):
            codes = [code for code, weight in enumerate(law.rows[case]) if weight]
            if [int(row[0]) for row in sent] != [codes[place] for place in places]:
                continue
        names = [row.tobytes() for row in sent]
        if isinstance(law, HalfSpaceLaw):
            if np.array_equal(*sent):
                return {names[0]: Fraction(1)}  # orthogonal to v: z stays
            if np.any(sent.sum(axis=0) != 1):
                continue
        if len(set(names)) == len(names):
            return dict(zip(names, masses, strict=True))
    return None


def _plausible_cases(situation: Situation, law: Law, rng: np.random.Generator) -> list[int]:
    """The cases that a few words do not rule out: there may be hundreds, and trying all cells of each takes long."""
    if law.cases == 1:
        return [0]
    if isinstance(law, TwoLevelLaw):
        # The first word that is outside and the last one that is inside send different candidates.
        inner = [case for case, (inside, _) in enumerate(law.levels) if 0 < inside < law.size]
        draws = [(law.levels[case][1] - step, 0) for case in inner for step in (1, 0)]
        sent = situation.encode(np.array(draws, dtype=np.uint64)).reshape(len(inner), 2, -1)
        differ = {case for case, pair in zip(inner, sent, strict=True) if not np.array_equal(*pair)}
        return [case for case in range(law.cases) if case in differ or case not in inner]
    samples = [law.boxes(case, rng.integers(law.cells(case), size=_SAMPLE).tolist()) for case in range(law.cases)]
    corners = _corner_outcomes(situation, [box for boxes in samples for box in boxes], rng)
    return [case for case, some in enumerate(np.split(corners, law.cases)) if _all_same(some)]


def _constant(situation: Situation, boxes: list[Box], rng: np.random.Generator) -> NDArray[np.int64] | None:
    """The one outcome of each box; None if a box has several."""
    corners = _corner_outcomes(situation, boxes, rng)
    return corners[:, 0] if _all_same(corners) else None


def _all_same(corners: NDArray[np.int64]) -> bool:
    return bool(np.all(corners == corners[:, :1]))


def _corner_outcomes(situation: Situation, boxes: list[Box], rng: np.random.Generator) -> NDArray[np.int64]:
    """What is sent at all corners of the boxes and somewhere within, (boxes, corners + 1, width of an outcome)."""
    draws = []
    for box in boxes:
        inner = tuple(int(rng.integers(low, high, endpoint=True)) for low, high in box)
        draws += [*itertools.product(*box), inner]
    sent = situation.encode(np.array(draws, dtype=np.uint64))
    return sent.reshape(len(boxes), -1, sent.shape[1])


def _words_of(mechanism: Mechanism, row: NDArray[np.float64]) -> int:
    """How many words the encoder asks for, for this vector."""
    source = _Script()
    clients = None if mechanism.coin == "private" else np.full(1, _CLIENT, dtype=np.uint64)
    mechanism._encode_rows(row[None], clients, source, None)
    return source.asked
