"""The shape of the minimum-variance channel: a length and a value per code and the width of a window.

Write q_i for the least probability of code i over all inputs; ε-LDP lets any input raise it to e^ε·q_i. For
an input y the second moment Σ P(i|y)·w_i² is least, given Σ P = 1 and Σ P·w = y, when the raised codes are those whose
w lies between two values (complementary slackness with the quadratic w² − μw − λ). So lay the codes side by side in the
order of w, each as long as its q_i: the raised ones fill a *window*, whose length is the same for all inputs and which
slides from left to right as y grows. The second moment is a convex, piecewise linear function of y with slope
w_l + w_r, the sum of the values at the window's two ends; its corners, where an end of the window crosses from one code
to the next, are the tokens, and stochastic rounding between tokens attains everything in between. So a channel is a
length and a value per code and the window's width, all symmetric about 0, and its expected second moment is a smooth
function of them, which BFGS minimises.
"""

import math
from typing import NamedTuple

import numpy as np

from sstq.scalar.codebooks import rounding_moments
from sstq.scalar.densities import Density, Vector

_SEARCH = {"gtol": 1e-6, "maxiter": 300}
_LOG_BOUNDS = (math.log(1e-9), 5.0)
# In the search, closer tokens are the same.
_SAME = 1e-11


class Windows(NamedTuple):
    """A symmetric channel by its positive half: values w > 0 up to a common factor, their codes' lengths, the window.

    Both halves together have length 1; the window's width is in (0, 1).
    """

    heights: Vector
    lengths: Vector
    width: float


def search(bits: int, epsilon: float, density: Density) -> Windows:
    """Return the best shape with 2^bits codes, for the likely numbers of codes in the outermost window."""
    half = 1 << (bits - 1)
    # Near the window of the piecewise mechanism (Wang et al., ICDE 2019), which has infinitely many codes.
    near = round(2 * half / (math.exp(epsilon / 2) + 1))
    tops = {1, near - 1, near, near + 1} & {*range(1, half + 1)}
    shapes = [_descend(half, top, epsilon, density) for top in sorted(tops)]
    return min(shapes, key=lambda shape: second_moment(shape, epsilon, density)[0])


def _descend(half: int, codes_at_top: int, epsilon: float, density: Density) -> Windows:
    """The channel that BFGS reaches from equal codes in logarithms of the steps between values and of the lengths.

    The outermost window holds exactly the `codes_at_top` largest values. Wherever it ends between two codes instead,
    the values' common factor has a kink as a function of the width, and least values sit at kinks.
    """
    from scipy.optimize import minimize

    top, heights = slice(half - codes_at_top, None), (np.arange(half) + 0.5) / half
    steps = np.diff(heights, prepend=0.0) / heights[-1]
    point = np.log(np.concatenate([steps, np.full(half, 0.5 / half)]))
    unit = second_moment(_from_logs(point, top)[0], epsilon, density)[0]

    def objective(free: Vector) -> tuple[float, Vector]:
        logs = np.clip(free, *_LOG_BOUNDS)
        windows, steps = _from_logs(logs, top)
        loss, by_height, by_length, by_width = second_moment(windows, epsilon, density)
        by_length[top] += by_width
        by_step = np.cumsum(by_height[::-1])[::-1]  # a step raises every value above it
        by_log_length = windows.lengths * (by_length - 2 * windows.lengths @ by_length)
        return loss / unit, np.where(logs == free, np.concatenate([steps * by_step, by_log_length]) / unit, 0.0)

    descent = minimize(objective, point, jac=True, method="BFGS", options=_SEARCH)
    return _from_logs(np.clip(descent.x, *_LOG_BOUNDS), top)[0]


def _from_logs(logs: Vector, top: slice) -> tuple[Windows, Vector]:
    half = len(logs) // 2
    steps = np.exp(logs[:half])
    lengths = np.exp(logs[half:] - logs[half:].max())
    lengths /= 2 * lengths.sum()
    return Windows(np.cumsum(steps), lengths, float(lengths[top].sum())), steps


def second_moment(windows: Windows, epsilon: float, density: Density) -> tuple[float, Vector, Vector, float]:
    """Return E[w²] under the density, the values scaled so that the tokens reach ±1, with its derivatives.

    They are by the heights, the lengths (moving a positive code and its mirror image) and the width.
    """
    boost, width = math.expm1(epsilon), windows.width
    v = np.concatenate([-windows.heights[::-1], windows.heights])
    lengths = np.concatenate([windows.lengths[::-1], windows.lengths])
    ends = np.append(0.0, np.cumsum(lengths))
    ends[-1] = 1.0
    starts = np.unique(np.clip(np.concatenate([ends, ends - width]), 0.0, 1 - width))
    overlap = np.minimum(ends[1:], starts[:, None] + width) - np.maximum(ends[:-1], starts[:, None])
    floor = 1 / (1 + boost * width)  # the sum of all least probabilities
    probabilities = floor * (lengths + boost * np.maximum(overlap, 0.0))
    positions = probabilities @ v
    reach = float(positions[-1])
    positions = np.maximum.accumulate(np.clip(positions / reach, -1.0, 1.0))
    positions[0], positions[-1] = -1.0, 1.0
    # Where the window slides within one code nothing changes: the gaps between tokens are elsewhere.
    gaps = np.flatnonzero(np.diff(positions) > _SAME)
    below, above = probabilities[gaps], probabilities[gaps + 1]
    middles = (starts[gaps] + starts[gaps + 1]) / 2
    positions = np.append(positions[gaps], 1.0)
    positions[0] = -1.0
    lower, upper = rounding_moments(positions, density)
    # The point masses belong to the outermost gaps; per gap: mass at its ends, and the window's two values there.
    lower[:, 0] += density.edges[0] * np.array([1.0, -1.0])
    upper[:, -1] += density.edges[1]
    loss = float(lower[0] @ (below @ v**2) + upper[0] @ (above @ v**2))
    left = v[np.searchsorted(ends[1:-1], middles)]
    right = v[np.searchsorted(ends[1:-1], middles + width)]
    slope = left + right
    mass, first = lower[0] + upper[0], lower[1] + upper[1]
    # Derivatives of the moment at a fixed mean: those of Σ P·(v² − slope·v), as the window's place adapts.
    mean_probabilities = lower[0] @ below + upper[0] @ above
    sloped = (lower[0] * slope) @ below + (upper[0] * slope) @ above
    by_v = 2 * v * mean_probabilities - sloped + (slope @ mass) * floor * lengths
    inside = (ends[1:-1] > middles[:, None]) & (ends[1:-1] < (middles + width)[:, None])
    drop = v[:-1] - v[1:]
    raised = boost * inside
    by_end = floor * drop * ((v[:-1] + v[1:]) * (mass @ (1 + raised)) - (slope * mass) @ raised)
    shrink = -boost * floor  # the relative change of all least probabilities with the width
    by_width = shrink * (loss - reach * float(slope @ first)) - floor * boost * float((left * right) @ mass)
    # The values are scaled by the reach: its own derivatives.
    top = 1 - width
    reach_by_v = probabilities[-1] - floor * lengths
    reach_by_end = floor * boost * drop * (ends[1:-1] > top)
    reach_by_width = shrink * reach + floor * boost * float(v[np.searchsorted(ends[1:-1], top, side="right")])
    pull = float(slope @ first) - 2 * loss / reach
    by_v, by_end = (by_v + pull * reach_by_v) / reach**2, (by_end + pull * reach_by_end) / reach**2
    by_code = np.append(np.cumsum(by_end[::-1])[::-1], 0.0)  # a length moves all ends after it
    half = len(windows.heights)
    return (
        loss / reach**2,
        by_v[half:] - by_v[half - 1 :: -1],
        by_code[half:] + by_code[half - 1 :: -1],
        float((by_width + pull * reach_by_width) / reach**2),
    )
