"""The best draw behind a shuffler: the rows inside, the frames and the ε per message, for a central (ε, δ).

The draw that is best for a local ε is not the best one after shuffling. For m messages from a two-level draw with a
share κ of the candidates inside, the accounting says how large the ε₀ of each may be: the fewer are inside, the larger
(`sstq.accounting.two_level_local_epsilon`). So κ is searched for. In many dimensions, with B blocks of rows, f = κ·B
the share of the signed rows of the person's block that are inside and z their normal quantile, a message has the
variance d/a² with

    a = (e^ε₀ − 1)·κ/(κ·e^ε₀ + 1 − κ)·φ(z)/f.

That says about where κ is. The size N of the frames, their number G and the integer k = κ·2N·B are then chosen by the
exact error (`RowDraw.error`) with the bias of frames in it. Private groups have a block each: for a small ε₀, when
(e^ε₀ − 1)·√κ is what the budget fixes, the error does not depend on B, and for a larger one it falls with B.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from sstq.accounting import shuffled_epsilon, two_level_local_epsilon
from sstq.accounting.bounds import check_delta
from sstq.accounting.shuffling import normal_local_epsilon, normal_power
from sstq.checks import RANGES, check_argument, check_number
from sstq.mechanisms import FrameUnit, GroupUnit
from sstq.mechanisms.frameunit.alignment import RowDraw
from sstq.mechanisms.frameunit.rows import usual_size
from sstq.mechanisms.two_level_draw import whole_budget

MESSAGE_BITS = 32
MOST_MESSAGES = 16
"""The default maximum of bits per message and of messages per person."""

# Shares of candidates inside for which the accounting is asked; between them ε₀ is interpolated.
_RATIO = 1.5
_MOST_ROWS = 1 << 16
# The share of the squared error that is given up for a shorter message, and for frames of half as many rows: where
# everybody has a frame of their own, the work of devices and of the server is proportional to the rows.
_SLACK = 0.002
_SIZE_SLACK = 0.03
# The increase in squared error that is accepted for half as many messages.
_MESSAGES_SLACK = 0.02
# Of ε₀, where the integers of a law have a little more than the draw that was searched with.
_SHRINK = 1e-5
_EPSILON_MIN, _EPSILON_MAX, _ = RANGES["epsilon"]
# What a plan may have more than the squared error of a first guess: it may take half as many messages.
_SPARE = 1.03


@dataclass(frozen=True)
class ShuffleBudget:
    """A central (ε, δ) for n people with m messages each, behind a shuffler, over several rounds."""

    epsilon: float
    delta: float
    clients: int
    messages: int
    rounds: int = 1
    rough: bool = False  # whether losses are taken as normal, for a first guess

    @property
    def slots(self) -> int:
        """The messages per person over all rounds: a fresh shuffle counts like a separate slot."""
        return self.messages * self.rounds

    @cached_property
    def power(self) -> float:
        """(e^ε₀ − 1)²·α if losses are normal."""
        return normal_power(self.epsilon, self.delta, self.clients, self.slots)


@lru_cache(maxsize=4096)
def _local_epsilon(budget: ShuffleBudget, share: float) -> float:
    """The largest ε₀ of a message with this share of the candidates inside."""
    if budget.rough:
        return _normal_epsilon(budget.power, share)
    local = two_level_local_epsilon(
        budget.epsilon, share, budget.clients, budget.delta, budget.slots
    )
    return min(local, _EPSILON_MAX)


def _normal_epsilon(power: float, share: float) -> float:
    return min(normal_local_epsilon(power, share), _EPSILON_MAX)


@lru_cache(maxsize=1024)
def _powers(budget: ShuffleBudget, blocks: int) -> tuple[float, float]:
    """The power that gives the true ε₀ of about the best share, and the exponent by which it grows with the share."""
    shares = [_RATIO ** -(_usual_place(budget, blocks) + step) for step in (0, 2)]
    grown = [math.expm1(_local_epsilon(budget, share)) for share in shares]
    first, second = (
        one**2 * share / (1 + share * one)
        for one, share in zip(grown, shares, strict=True)
    )
    exponent = math.log(first / second) / math.log(shares[0] / shares[1])
    return first / shares[0] ** exponent, exponent


def shuffled_mechanism(
    dim: int,
    epsilon: float,
    delta: float,
    clients: int,
    *,
    messages: int = 1,
    rounds: int = 1,
    groups: int | None = None,
    bits: int = MESSAGE_BITS,
    clip: float = 1.0,
    frame_seed: int = 0,
) -> FrameUnit | GroupUnit:
    """Return the mechanism of least error whose shuffled messages are (ε, δ)-private in total.

    It is FrameUnit, or GroupUnit for people with private groups. `sstq.accounting.shuffled_epsilon` of what is returned
    is at most ε. That needs a shuffler, see there; without one a person spends the mechanism's `bundle_epsilon`.

    Args:
        dim: d, the length of the vectors.
        epsilon: the total ε of a person's messages, behind the shuffler.
        delta: the total δ.
        clients: n, the people per round. Fewer honest people void the claim, so count only those sure to answer.
        messages: m, the messages per person, each shuffled with those of its own slot.
        rounds: the rounds in which a person sends m messages, each with a fresh shuffle among n people. ε and δ are the
            total of all rounds; the error that is minimized is that of one round.
        groups: the number of private groups; None for vectors alone.
        bits: the maximum bits per message. The shortest message within 0.2 % of the least squared error is taken.
        clip: vectors longer than this are scaled down to it.
        frame_seed: the public seed.

    Examples:
        >>> from sstq.accounting import shuffled_epsilon
        >>> mechanism = shuffled_mechanism(100, epsilon=1.0, delta=1e-6, clients=10_000, messages=4)
        >>> mechanism.messages, mechanism.choice.inside, round(mechanism.epsilon, 2), round(mechanism.bundle_epsilon, 1)
        (4, 20, 4.5, 18.0)
        >>> 0.999 < shuffled_epsilon(mechanism, 10_000, 1e-6) <= 1.0
        True
    """
    checked: dict[str, Any] = {
        "epsilon": epsilon,
        "clients": clients,
        "messages": messages,
        "rounds": rounds,
    }
    checked = {name: check_argument(name, value) for name, value in checked.items()}
    budget = ShuffleBudget(delta=check_delta(delta, positive=True), **checked)
    dim = check_argument("dim", dim)
    blocks = 1 if groups is None else check_argument("groups", groups)
    size, frames, inside = _best_frames(budget, dim, blocks, bits)
    options: dict[str, Any] = {"frames": frames, "frame_size": size, "inside": inside}
    # Defaults are left out, so that the line of Python is short.
    unusual = {
        "messages": (messages, 1),
        "clip": (clip, 1.0),
        "frame_seed": (frame_seed, 0),
    }
    options |= {
        name: value for name, (value, usual) in unusual.items() if value != usual
    }
    kind: type[FrameUnit | GroupUnit] = FrameUnit
    if groups is not None:
        kind = GroupUnit
        options = {"groups": groups, "blocks": groups, **options}
    local = _local_epsilon(budget, inside / (2 * size * blocks))
    step = _SHRINK
    while local >= _EPSILON_MIN:
        # Few digits, rounded down, are easy to type.
        built = kind(dim, math.floor(local * 1e5) / 1e5, **options)
        if shuffled_epsilon(built, clients, delta, rounds=rounds) <= epsilon:
            return built
        # The law of the integers needs slightly less than the whole budget.
        local = local * (1 - step)
        step = 2 * step
    raise ValueError(
        f"messages must be fewer, got {budget.slots} in total: each would need an epsilon below {_EPSILON_MIN} to be "
        f"({epsilon:g}, {delta:g})-private in total among {clients} people"
    )


def fewest_messages(budget: ShuffleBudget, blocks: int = 1) -> int:
    """The messages of a person, halved as long as that costs little."""

    def variance(messages: int) -> float:
        fewer = replace(budget, messages=messages)
        place = _usual_place(fewer, blocks)
        return (
            _variance(_local_epsilon(fewer, _RATIO**-place), place, blocks) / messages
        )

    messages = budget.messages
    while messages > 1 and variance(messages // 2) <= (1 + _MESSAGES_SLACK) * variance(
        messages
    ):
        messages //= 2
    return messages


def likely_mse(
    budget: ShuffleBudget, dim: int, blocks: int, bits: int = MESSAGE_BITS
) -> float:
    """About the squared error of a mean of vectors of norm 1, no less than a plan predicts, with less work."""
    size = usual_size(dim)
    candidates = 2 * size * blocks
    room = min(30, bits - (candidates - 1).bit_length())
    if room < 0:
        return math.inf
    place = min(_usual_place(budget, blocks), math.floor(math.log(candidates, _RATIO)))
    inside = min(math.floor(_RATIO**-place * candidates), size)
    draw = RowDraw(
        whole_budget(_local_epsilon(budget, _RATIO**-place), candidates, inside),
        dim,
        size,
        blocks,
    )
    total = budget.clients * budget.messages
    if total > draw.messages_allowed(1 << room):
        # Then more rows inside are better than the least variance.
        draw = _best_inside(budget, dim, size, blocks, 1 << room)
    return _SPARE * draw.error(1 << room, total).total


@lru_cache(maxsize=1024)
def _usual_place(budget: ShuffleBudget, blocks: int) -> int:
    """The best place if the losses are normal."""

    def variance(place: int) -> float:
        return _variance(_normal_epsilon(budget.power, _RATIO**-place), place, blocks)

    return _valley(variance, math.ceil(math.log(2 * blocks, _RATIO)))


def _variance(local: float, place: int, blocks: int) -> float:
    from scipy.special import ndtri

    share = _RATIO**-place
    inside = share * blocks
    grown = math.expm1(local)
    if inside > 0.5:
        return math.inf
    density = math.exp(-(float(ndtri(inside)) ** 2) / 2) / math.sqrt(2 * math.pi)
    return (inside * (1 + grown * share) / (grown * share * density)) ** 2


def _valley(values: Callable[[int], float], start: int) -> int:
    """The place of the least of values that fall to it and rise from it, in either direction from `start`."""
    place = start
    best = values(start)
    for step in (1, -1):
        while (value := values(place + step)) < best:
            place = place + step
            best = value
    return place


def _best_frames(
    budget: ShuffleBudget, dim: int, blocks: int, bits: int
) -> tuple[int, int, int]:
    """N, the number of frames and k of the shortest message within the slack of the least error, with the least N."""
    total = budget.clients * budget.messages
    size = least = usual_size(dim)
    bits = check_number(
        "bits", bits, (2 * least * blocks - 1).bit_length(), 64, integer=True
    )
    shapes: list[tuple[float, int, int, int, int]] = []
    while size == least or (
        size <= _MOST_ROWS and 2 * size * blocks <= 1 << min(bits, 31)
    ):
        needed = (2 * size * blocks - 1).bit_length()
        room = min(30, bits - needed)
        best = _best_inside(budget, dim, size, blocks, 1 << room)
        if (
            shapes
            and best.error(1 << room, total).total > (1 - _SIZE_SLACK) * min(shapes)[0]
        ):
            break
        for more in range(room + 1):
            shapes.append(
                (
                    best.error(1 << more, total).total,
                    needed + more,
                    size,
                    1 << more,
                    best.choice.inside,
                )
            )
        size *= 2
    enough = (1 + _SLACK) * min(shapes)[0]
    _, _, size, frames, inside = min(
        (one for one in shapes if one[0] <= enough), key=lambda one: (one[1], one[2])
    )
    return size, frames, inside


def _best_inside(
    budget: ShuffleBudget, dim: int, size: int, blocks: int, frames: int
) -> RowDraw:
    """The draw from frames of N rows whose k has the least error, searched from where its variance is least."""
    candidates = 2 * size * blocks
    total = budget.clients * budget.messages
    usual = _RATIO ** -_usual_place(budget, blocks)
    power, exponent = _powers(budget, blocks)

    def draw(inside: int) -> RowDraw:
        share = inside / candidates
        local = _normal_epsilon(power * share**exponent, share)
        return RowDraw(whole_budget(local, candidates, inside), dim, size, blocks)

    def error(at: int) -> float:
        return (
            draw(counts[at]).error(frames, total).total
            if 0 <= at < len(counts)
            else math.inf
        )

    counts = sorted(
        {round(_RATIO**at) for at in range(math.floor(math.log(size, _RATIO)) + 1)}
    )
    near = counts[_valley(error, max(bisect(counts, usual * candidates) - 1, 0))]
    tried = {
        min(max(1, round(near * _RATIO ** (step / 8))), size) for step in range(-8, 9)
    }
    return min(
        (draw(inside) for inside in sorted(tried)),
        key=lambda draw: draw.error(frames, total).total,
    )
