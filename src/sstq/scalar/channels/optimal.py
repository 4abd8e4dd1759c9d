"""The minimum-variance channel: of all unbiased ε-LDP channels with 2^b codes, the one of least E[w²] for a density.

Never worse than flat randomized response, and never worse with more bits: flat channels with uniform and optimized
codebooks and the solution for one bit less are always among the candidates, and the best is taken. The candidates are
compared by their exact integers, under the density itself.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import numpy as np

from sstq.exactness import check_epsilon
from sstq.scalar.channels.decoders import unbiased_decoder
from sstq.scalar.channels.flat import FlatChannel, flat_channel
from sstq.scalar.channels.optimal_cache import read_cached, write_cached
from sstq.scalar.channels.optimal_exact import (
    OPTIMAL,
    OptimalChannel,
    decoded_second_moment,
    embedded,
    from_flat,
    from_windows,
)
from sstq.scalar.channels.optimal_search import (
    Windows,
    codes_at_top,
    descend,
    linear_program,
    second_moment,
    with_codes,
)
from sstq.scalar.codebooks import Codebook, check_bits, optimized_codebook, uniform_codebook
from sstq.scalar.densities import Density

Progress = Callable[[int, int], None]
_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)

# Part of what names a solved channel on disk: raise it when the search finds anything else.
_SOLVER_VERSION = 1

# More codes than 2^5 gain a thousandth at most; flat channels are candidates up to 2^8.
_SEARCHED_BITS, _FLAT_BITS = 5, 8

# A flat channel as a table has the same second moment up to this.
_ROUNDING = 1e-12

_solved: dict[str, OptimalChannel] = {}


@contextmanager
def solving_progress(report: Progress) -> Iterator[None]:
    """Within the block, every channel that has to be solved calls ``report`` with the bits done and the bits to do.

    Examples:
        >>> with solving_progress(lambda done, total: None):
        ...     _ = optimal_channel(1, 3.0, Density.uniform())
    """
    before = _progress.set(report)
    try:
        yield
    finally:
        _progress.reset(before)


def optimal_channel(bits: int, epsilon: float, density: Density) -> OptimalChannel:
    """Return the unbiased ε-LDP channel with 2^bits codes and free tokens of least second moment under a density.

    The first call takes up to a few seconds; the solution is kept in memory and on disk (`optimal_cache`).

    Args:
        bits: b, 1 to 12. More than 5 bits gain next to nothing: codes beyond are used only by a flat channel, where one
            is better.
        epsilon: the privacy budget.
        density: a public density of the coordinates in [-1, 1]. The channel is symmetric, so its symmetric part counts.

    Examples:
        >>> solved = optimal_channel(2, 3.0, Density.kashin(1.6, 2.575))
        >>> solved.channel.privacy_loss() <= 3.0
        True
        >>> solved.values.round(2), solved.channel.inputs
        (array([-1.2 , -0.33,  0.33,  1.2 ]), 6)

    """
    bits, epsilon = check_bits(bits), check_epsilon(epsilon)
    even = Density((density.masses + density.masses[::-1]) / 2, (sum(density.edges) / 2,) * 2)
    return _known(bits, epsilon, even) or _solve_upward(bits, epsilon, even, _progress.get() or _silent)


def _solve_upward(bits: int, epsilon: float, density: Density, report: Progress) -> OptimalChannel:
    """Solve for one bit, two bits, …, each with the one before as a candidate; what is known is not solved again."""
    smaller = None
    for size in range(1, bits):
        report(size - 1, bits)
        smaller = _known(size, epsilon, density) or _solve(size, epsilon, density, smaller)
    report(bits - 1, bits)
    found = _solve(bits, epsilon, density, smaller)
    report(bits, bits)
    return found


def _silent(_done: int, _total: int) -> None:
    pass


def _configuration(bits: int, epsilon: float, density: Density) -> tuple[str, dict[str, Any]]:
    """What a solution depends on, and its digest."""
    numbers = np.append(density.masses, density.edges).astype("<f8")
    configuration = {
        "solver": _SOLVER_VERSION,
        "bits": bits,
        "epsilon": epsilon.hex(),
        "density": hashlib.sha256(numbers.tobytes()).hexdigest(),
    }
    return hashlib.sha256(repr(configuration).encode()).hexdigest(), configuration


def _known(bits: int, epsilon: float, density: Density) -> OptimalChannel | None:
    """The solution from memory, or from disk if what is there keeps the promise to be no worse than flat."""
    digest, configuration = _configuration(bits, epsilon, density)
    if digest not in _solved:
        found = read_cached(digest, configuration)
        expected = (OPTIMAL, epsilon, 1 << bits)
        if found is None or (found.channel.name, found.channel.epsilon, found.channel.outputs) != expected:
            return None
        least = min((moment for moment, _, _ in _flat_moments(bits, epsilon, density)), default=math.inf)
        if found.second_moment(density) > least * (1 + _ROUNDING):
            return None
        _solved[digest] = found
    return _solved[digest]


def _flat_moments(bits: int, epsilon: float, density: Density) -> list[tuple[float, FlatChannel, Codebook]]:
    """The second moments of flat channels with both codebooks; beyond 8 bits there are none."""
    if bits > _FLAT_BITS:
        return []
    channel = flat_channel(bits, epsilon)
    books = [uniform_codebook(bits), optimized_codebook(bits, epsilon)]
    return [
        (decoded_second_moment(channel, book, unbiased_decoder(channel, book), density), channel, book)
        for book in books
    ]


def _solve(bits: int, epsilon: float, density: Density, smaller: OptimalChannel | None) -> OptimalChannel:
    """The best of the search, the flat channels and the solution for one bit less; it is kept."""
    codes = 1 << bits
    candidates = []
    if bits <= _SEARCHED_BITS:
        candidates.append(from_windows(_search(bits, epsilon, density), epsilon, codes))
    if smaller is not None:
        candidates.append(embedded(smaller, codes))
    best = min((candidate.second_moment(density) for candidate in candidates), default=math.inf)
    candidates += [
        from_flat(channel, book, codes)
        for moment, channel, book in _flat_moments(bits, epsilon, density)
        if moment < best
    ]
    solved = min(candidates, key=lambda candidate: candidate.second_moment(density))
    digest, configuration = _configuration(bits, epsilon, density)
    write_cached(digest, configuration, solved)
    _solved[digest] = solved
    return solved


def _search(bits: int, epsilon: float, density: Density) -> Windows:
    """The best shape with 2^bits codes, from that without a limit, for the likely numbers of codes in a window."""
    half = 1 << (bits - 1)
    start = with_codes(_without_limit(epsilon, density), half)
    near = codes_at_top(start)
    tops = {1, max(near - 1, 1), near, min(near + 1, half)}
    shapes = [descend(start, top, epsilon, density) for top in sorted(tops)]
    return min(shapes, key=lambda shape: second_moment(shape, epsilon, density)[0])


@lru_cache(maxsize=4)
def _without_limit(epsilon: float, density: Density) -> Windows:
    """The linear program's solution, which serves for all numbers of bits."""
    return linear_program(epsilon, density)
