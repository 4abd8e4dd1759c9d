"""The minimum-variance channel: of all unbiased ε-LDP channels with 2^b codes, the one of least E[w²] for a density.

Never worse than flat randomized response, and never worse with more bits: flat channels with uniform and optimized
codebooks and the solution for one bit less are always among the candidates, and the best is taken. The candidates are
compared by their exact integers, under the density itself.

In exact integers, code i has the weight L_i in every row; a row may raise it to H_i = ⌊E·L_i⌋, E just below e^ε. What a
row lacks of 2^62 is one and the same integer S for all rows: it fills a window of that length, laid over the codes side
by side with lengths H_i − L_i. Whatever the L_i, the rows sum to 2^62 and no ratio exceeds e^ε: there is nothing to
round or to repair. The tokens' positions are then *computed* from the integers, c_k = Σ_i P(i|k)·w_i, so that the
channel is unbiased as implemented.

Solved channels are cached on disk, in `sstq.files.atomic.cache_folder`. Cached files are not trusted: whatever is
missing, damaged or of another configuration is solved again, and a read-only folder is ignored.
"""

import hashlib
import json
import math
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sstq.checks import check_argument
from sstq.exactness import TOTAL, exp_lower
from sstq.files.atomic import atomic_file, cache_folder
from sstq.files.strict_json import read_json
from sstq.scalar import channels
from sstq.scalar.channels import Channel, FlatChannel, TableChannel, decoded_second_moment
from sstq.scalar.codebooks import Codebook, optimized_codebook, uniform_codebook
from sstq.scalar.densities import Density, Vector
from sstq.scalar.optimal_search import Windows, search

OPTIMAL = "optimal"
"""The name of the channel, and of the codebook that belongs to it."""

# Part of what names a solved channel on disk: raise it when the search finds anything else.
_SOLVER_VERSION = 1
_FORMAT = "sstq-optimal-channel"
# More codes than 2^5 gain a thousandth at most; flat channels are candidates up to 2^8.
_SEARCHED_BITS, _FLAT_BITS = 5, 8
# A flat channel as a table has the same second moment up to this.
_ROUNDING = 1e-12
_LARGEST_BIAS = Fraction(1, 1 << 51)
_THIN, _CLOSE, _CORRECTIONS = 1 << 22, 1e-6, 3

_solved: dict[str, "OptimalChannel"] = {}


@dataclass(frozen=True, eq=False)
class OptimalChannel:
    """A channel with the tokens and decoding values that make it unbiased; all of it is checked, in exact arithmetic.

    Args:
        channel: the integer weights, a row for each token and a column for each code.
        codebook: the positions of the tokens, in units of B.
        values: the decoding value of each code, in units of B.
    """

    channel: Channel
    codebook: Codebook
    values: Vector

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        values.setflags(write=False)
        object.__setattr__(self, "values", values)
        check_unbiased(self.channel, self.codebook, values)

    def second_moment(self, density: Density) -> float:
        """Return E[w²] in units of B² for coordinates of that density, stochastic rounding included."""
        return decoded_second_moment(self.channel, self.codebook, self.values, density)


def check_unbiased(channel: Channel, codebook: Codebook, values: Vector) -> None:
    """Refuse positions that are not Σ_i P(i|k)·w_i, in rational arithmetic, to the last place of a double."""
    if not np.isfinite(values).all() or values.shape != (channel.outputs,) or codebook.size != channel.inputs:
        given = f"{codebook.size} positions and {values.size} values"
        raise ValueError(f"{given} do not fit a channel of {channel.inputs} tokens and {channel.outputs} codes")
    for token, (mean, position) in enumerate(zip(_exact_means(channel.matrix, values), codebook.values, strict=True)):
        if abs(mean - Fraction(float(position))) > _LARGEST_BIAS:
            problem = f"token {token} stands for {position}, but its codes decode to {float(mean)!r} on average"
            raise ValueError(f"{problem}: the channel would be biased")


def optimal_channel(bits: int, epsilon: float, density: Density) -> OptimalChannel:
    """Return the unbiased ε-LDP channel with 2^bits codes and free tokens of least second moment under a density.

    The first call takes up to a few seconds; the solution is kept in memory and on disk. The channel is symmetric, so
    the symmetric part of the density counts. Beyond 5 bits more codes are used only where a flat channel is better.

    Examples:
        >>> solved = optimal_channel(2, 3.0, Density.kashin(1.6, 2.575))
        >>> solved.values.round(2), solved.channel.inputs
        (array([-1.2 , -0.33,  0.33,  1.2 ]), 6)
    """
    bits, epsilon = check_argument("bits", bits), check_argument("epsilon", epsilon)
    even = Density((density.masses + density.masses[::-1]) / 2, (sum(density.edges) / 2,) * 2)
    return _known(bits, epsilon, even) or _solve(bits, epsilon, even)


def _solve(bits: int, epsilon: float, density: Density) -> OptimalChannel:
    """Return and cache the best of the search, the flat channels and the solution for one bit less."""
    codes = 1 << bits
    smaller = optimal_channel(bits - 1, epsilon, density) if bits > 1 else None
    candidates = []
    if bits <= _SEARCHED_BITS:
        candidates.append(from_windows(search(bits, epsilon, density), epsilon, codes))
    if smaller is not None:
        candidates.append(_padded(smaller.channel.matrix, epsilon, smaller.codebook, smaller.values, codes))
    best = min((candidate.second_moment(density) for candidate in candidates), default=math.inf)
    for moment, channel, book in _flat_moments(bits, epsilon, density):
        if moment < best:
            half = book.size // 2
            candidates.append(_slide([channel.other] * half, book.values[half:], epsilon, codes))
    solved = min(candidates, key=lambda candidate: candidate.second_moment(density))
    _keep(_configuration(bits, epsilon, density), solved)
    return solved


def _flat_moments(bits: int, epsilon: float, density: Density) -> list[tuple[float, FlatChannel, Codebook]]:
    """The second moments of flat channels with both codebooks; beyond 8 bits there are none."""
    if bits > _FLAT_BITS:
        return []
    channel = channels.flat_channel(bits, epsilon)
    found = []
    for book in (uniform_codebook(bits), optimized_codebook(bits, epsilon)):
        values = channels.unbiased_decoder(channel, book)
        found.append((decoded_second_moment(channel, book, values, density), channel, book))
    return found


def from_windows(windows: Windows, epsilon: float, outputs: int) -> OptimalChannel:
    """Return the exact channel of that shape; codes that the shape does not need are never sent."""
    floor = 1 / (1 + math.expm1(epsilon) * windows.width)
    lows = [round(float(length) * floor * TOTAL) for length in windows.lengths]
    thick = [place for place, low in enumerate(lows) if low >= _THIN]
    return _slide([lows[place] for place in thick], windows.heights[thick] / windows.heights[-1], epsilon, outputs)


def _slide(lows: list[int], heights: Vector, epsilon: float, outputs: int) -> OptimalChannel:
    """The channel of the least weights ``lows`` and values ∝ ``heights`` of the positive codes, smallest first."""
    limit = exp_lower(epsilon)
    low = np.array(lows[::-1] + lows, dtype=object)
    ends = np.append(0, np.cumsum(low * limit.numerator // limit.denominator - low))
    width = TOTAL - low.sum()
    last = ends[-1] - width
    if not 0 < width <= ends[-1]:
        raise ValueError(f"the least weights sum to {low.sum()}: no window makes rows of 2^62 out of them")
    starts = np.array(sorted({start for start in [*ends, *(ends - width)] if 0 <= start <= last}), dtype=object)
    overlap = np.minimum(ends[1:], starts[:, None] + width) - np.maximum(ends[:-1], starts[:, None])
    matrix = (low + np.maximum(overlap, 0)).astype(np.int64)
    values = _reaching_one(matrix[-1], np.concatenate([-heights[::-1], heights]))
    positions = np.array([float(mean) for mean in _exact_means(matrix, values)])
    positions[0], positions[-1] = -1.0, 1.0
    kept = _apart(positions)
    return _padded(matrix[kept], epsilon, Codebook(OPTIMAL, positions[kept]), values, outputs)


def _padded(matrix: NDArray[np.int64], epsilon: float, book: Codebook, values: Vector, codes: int) -> OptimalChannel:
    """Pad the channel with codes that are never sent."""
    spare = codes - len(values)
    channel = TableChannel(OPTIMAL, epsilon, np.pad(matrix, ((0, 0), (0, spare))))
    return OptimalChannel(channel, book, np.pad(values, (0, spare)))


def _reaching_one(top: NDArray[np.int64], values: Vector) -> Vector:
    """Scale antisymmetric values so that the top token's mean is 1 to the last place of a double."""
    values = values / float(_exact_means(top[None], values)[0])
    lever = Fraction(int(top[-1]) - int(top[0]), TOTAL)
    for _ in range(_CORRECTIONS):
        # The scaled values are rounded one by one; the outermost pair makes up for what that leaves.
        missing = (1 - _exact_means(top[None], values)[0]) / lever
        values[-1] = float(Fraction(float(values[-1])) + missing)
        values[0] = -values[-1]
    return values


def _exact_means(matrix: NDArray[np.int64], values: Vector) -> list[Fraction]:
    """Σ_i P(i|k)·w_i for every row k, without rounding."""
    fractions = [Fraction(float(value)) for value in values]
    shared = max(fraction.denominator for fraction in fractions)  # powers of two: the largest is common to all
    numerators = np.array([int(fraction * shared) for fraction in fractions], dtype=object)
    return [Fraction(int(total), shared * TOTAL) for total in matrix.astype(object) @ numerators]


def _apart(positions: Vector) -> list[int]:
    """The places of symmetric positions that differ by more than rounding; of those that do not, the outer one."""
    kept: list[int] = []
    for place in range(len(positions) - 1, (len(positions) - 1) // 2 - 1, -1):
        if positions[place] >= 0 and (not kept or positions[kept[-1]] - positions[place] > _CLOSE):
            kept.append(place)
    return sorted({*kept, *(len(positions) - 1 - place for place in kept)})


def _configuration(bits: int, epsilon: float, density: Density) -> str:
    """The key of a solution: everything that it depends on."""
    digest = hashlib.sha256(np.append(density.masses, density.edges).astype("<f8").tobytes()).hexdigest()
    return f"solver {_SOLVER_VERSION}, {bits} bits, epsilon {epsilon.hex()}, density {digest}"


def _path(configuration: str) -> Path:
    return cache_folder() / f"optimal-{hashlib.sha256(configuration.encode()).hexdigest()}.json"


def _known(bits: int, epsilon: float, density: Density) -> OptimalChannel | None:
    """The solution from memory, or from a file that is sound and keeps the promise to be no worse than flat."""
    configuration = _configuration(bits, epsilon, density)
    if configuration in _solved:
        return _solved[configuration]
    try:
        data = read_json(_path(configuration).read_bytes())
        if (data["format"], data["configuration"]) != (_FORMAT, configuration):
            return None
        channel = TableChannel(OPTIMAL, epsilon, data["weights"])
        found = OptimalChannel(channel, Codebook(OPTIMAL, data["positions"]), data["values"])
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, OverflowError):
        return None
    least = min((moment for moment, _, _ in _flat_moments(bits, epsilon, density)), default=math.inf)
    if channel.outputs != 1 << bits or found.second_moment(density) > least * (1 + _ROUNDING):
        return None
    _solved[configuration] = found
    return found


def _keep(configuration: str, solved: OptimalChannel) -> None:
    """Keep the channel in memory, and on disk if the folder can be written."""
    _solved[configuration] = solved
    parts = {"weights": solved.channel.matrix, "positions": solved.codebook.values, "values": solved.values}
    data = {"format": _FORMAT, "configuration": configuration} | {name: part.tolist() for name, part in parts.items()}
    with suppress(OSError, RuntimeError):  # RuntimeError: there is no home folder
        path = _path(configuration)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(json.dumps(data).encode())
