"""Pooling: one mean from several estimates of it, with different ε, clips, mechanisms or days."""

import math
from collections.abc import Iterable
from functools import reduce

import numpy as np

from sstq.aggregation.estimates import Estimate


def pool(estimates: Iterable[Estimate]) -> Estimate:
    """Combine estimates of the same mean from different messages with the least variance.

    An estimate with the squared error T = Σ stderr² over all coordinates has a weight proportional to 1/T. It is one
    weight per estimate, not one per coordinate: T is known well, and hardly depends on the messages. Weights from the
    standard errors of single coordinates would follow their noise.

    Standard errors and regions are those of the weighted mean. Biases of different frames are independent and add up in
    squares. Estimates on the same frames (the same size and `frame_seed`) have the same bias, so their biases add up
    linearly: use ``with_seed`` to give every round fresh frames.

    All estimates must be of the same population: standard errors do not include the bias of different clips or that
    of a biased decoder. Pool all estimates in one call; pooled estimates are refused. Shares of groups are not pooled.

    Args:
        estimates: one or more estimates of the same dimension, each from two or more messages.

    Returns:
        An `Estimate` with the `estimator` "pool". It counts all messages, and is simulated if any of them was.

    Examples:
        >>> import sstq
        >>> x = np.full((5000, 4), 0.5)
        >>> careful, open_ = sstq.SSTQ(4, 1.0, frame_seed=1), sstq.SSTQ(4, 4.0, frame_seed=2)
        >>> found = []
        >>> for mechanism in (careful, open_):
        ...     found.append(mechanism.aggregator().update(mechanism.encode(x, rng=1)).mean())
        >>> pooled = sstq.pool(found)
        >>> pooled.count, bool(np.all(pooled.stderr < found[1].stderr))
        (10000, True)
    """
    parts = list(estimates)
    _check(parts)
    totals = np.array([np.sum(part.stderr**2) for part in parts])
    weights = 1 / totals / np.sum(1 / totals)
    dim = len(parts[0].value)
    noise2 = np.sum([weight**2 * part.noise2 for weight, part in zip(weights, parts, strict=True)], axis=0)
    bias2 = _bias2(parts, weights)
    shares = np.array([weight**2 * np.sum(part.noise2) for weight, part in zip(weights, parts, strict=True)])
    return Estimate(
        np.sum([weight * part.value for weight, part in zip(weights, parts, strict=True)], axis=0),
        np.sqrt(noise2 + bias2 / dim),
        sum(part.count for part in parts),
        any(part.simulated for part in parts),
        estimator="pool",
        note="; ".join(dict.fromkeys(part.note for part in parts if part.note)),
        frame_bias=math.sqrt(bias2),
        terms=_terms(parts, shares),
        directions=_directions(parts, shares),
        bias_directions=min((part.bias_directions for part in parts if part.frames), default=1),
        messages=sum(part.count for part in parts) / sum(part.people for part in parts),
        largest=reduce(np.maximum, (weight * part.largest for weight, part in zip(weights, parts, strict=True))),
        longest=float(max(weight * part.longest for weight, part in zip(weights, parts, strict=True))),
    )


def _check(parts: list[Estimate]) -> None:
    if not parts:
        raise ValueError("estimates must be one or more, got none")
    for number, part in enumerate(parts):
        if not isinstance(part, Estimate):
            raise ValueError(f"estimates must be estimates (aggregator.mean()), got {type(part).__name__} at {number}")
        if part.estimator == "pool":
            raise ValueError(f"estimates must not be pooled already, got one at {number}: pool all of them in one call")
        if len(part.value) != len(parts[0].value):
            raise ValueError(
                f"estimates must have the same dimension, got {len(part.value)} at {number} "
                f"and {len(parts[0].value)} at 0"
            )
        if any(part is other for other in parts[:number]):
            raise ValueError(f"estimates must come from different messages, got the same one twice, at {number}")
        error = float(np.sum(part.stderr**2))
        if not 0 < error < math.inf:
            raise ValueError(
                f"estimates must have positive standard errors, got a total of {error} at {number}: "
                "a mean needs two or more messages that differ"
            )


def _bias2(parts: list[Estimate], weights: np.ndarray) -> float:
    """The squared bias of the frames that is not part of the noise; the bias of shared frames never is."""
    separate = float(np.sum([(weight * part.frame_bias) ** 2 for weight, part in zip(weights, parts, strict=True)]))
    common: dict[str, list[float]] = {}
    for weight, part in zip(weights, parts, strict=True):
        if part.frames:
            common.setdefault(part.frames, []).append(weight * part.whole_bias)
    return separate + sum(sum(biases) ** 2 - sum(bias**2 for bias in biases) for biases in common.values())


def _terms(parts: list[Estimate], shares: np.ndarray) -> int:
    """The effective number of terms behind the variance of the noise (Welch and Satterthwaite)."""
    uncertainty = sum(
        share**2 / ((part.terms or part.count) - 1) for share, part in zip(shares, parts, strict=True) if share
    )
    return max(2, 1 + int(np.sum(shares) ** 2 / uncertainty)) if uncertainty else sum(part.count for part in parts)


def _directions(parts: list[Estimate], shares: np.ndarray) -> float:
    """A lower bound of the effective number of directions, from tr(Σ·Σ') ≤ √(tr Σ²·tr Σ'²)."""
    roots = sum(share / math.sqrt(part.noise_directions) for share, part in zip(shares, parts, strict=True))
    return max(1.0, (float(np.sum(shares)) / roots) ** 2) if roots else 1.0
